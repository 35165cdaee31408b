"""The SavedModel that is evaluated, served and pushed: from raw examples to named predictions.

A `run_fn` of a user's calls `export_model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_module.export.saving import export_model

__all__ = ["export_model"]


def __getattr__(name: str) -> Any:
    """Returns `export_model`, whose import of TensorFlow is deferred for readers of exported
    models.
    """
    if name == "export_model":
        from trainer_module.export.saving import export_model

        return export_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
