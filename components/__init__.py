"""The TFX components of our own."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """The class of our artifact, which Vertex AI looks for here: by the name of its type.

    That may have one dot. It is imported where it is asked for, as TFX takes seconds.
    """
    if name == "ModelVariants":
        from components.optimizer.artifacts import ModelVariants

        return ModelVariants
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
