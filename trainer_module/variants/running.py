"""Keeps the import of users' code that earlier versions documented; new code takes `export`."""

from trainer_module.export.variants.running import open_variant

__all__ = ["open_variant"]
