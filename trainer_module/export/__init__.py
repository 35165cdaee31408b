"""The SavedModel that is evaluated, served and pushed: raw examples in, named predictions out.

A `run_fn` of a user's calls `export_model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_module.export.saving import export_model

__all__ = ["export_model"]


def __getattr__(name: str) -> Any:
    """`export_model`, which imports TensorFlow; what reads exported models does without."""
    if name == "export_model":
        from trainer_module.export.saving import export_model

        return export_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
