"""`open_variant`, as manifests had it before it moved to `trainer_module.export.variants`."""

from trainer_module.export.variants.running import open_variant

__all__ = ["open_variant"]
