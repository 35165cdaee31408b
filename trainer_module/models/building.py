"""Keeps the import of users' code that earlier versions documented; new code takes `trainer`."""

from trainer_module.trainer import build_model

__all__ = ["build_model"]
