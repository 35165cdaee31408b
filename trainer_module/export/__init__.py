"""Exports the SavedModel, which maps raw examples to named predictions.

The pipeline evaluates, serves and pushes this SavedModel. A user's `run_fn` calls `export_model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_module.export.saving import export_model

__all__ = ["export_model"]


def __getattr__(name: str) -> Any:
    """Imports `export_model` on first use, because readers of exported models need no
    TensorFlow.
    """
    if name == "export_model":
        from trainer_module.export.saving import export_model

        return export_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
