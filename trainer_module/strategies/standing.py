"""The earlier name of `persistent`, which notebooks may still import."""

from trainer_module.strategies.persistent import connect

__all__ = ["connect"]
