"""`build_model`, as pages had it before it moved to `trainer_module.trainer`."""

from trainer_module.trainer import build_model

__all__ = ["build_model"]
