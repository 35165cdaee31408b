"""The SavedModel that is evaluated, served and pushed: raw examples in, named predictions out.

A `run_fn` of a user's calls `export_model`.
"""

from trainer_module.export.saving import export_model

__all__ = ["export_model"]
