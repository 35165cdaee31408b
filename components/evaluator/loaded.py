"""The models that an evaluation has loaded, for later steps of the evaluation in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainer_module.export.loading import load_exported

_kept: dict[str, Any] | None = None


@contextmanager
def keep_models() -> Iterator[None]:
    """Keeps each model that `load_model` loads in this process, until the context ends."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        _kept = None


def load_model(path: str) -> Any:
    """Returns a SavedModel, which may have been loaded before within `keep_models`.

    Raises:
      Exception: any error of TensorFlow; damaged files cause errors of various types.
    """
    kept = {} if _kept is None else _kept
    if path not in kept:
        kept[path] = load_exported(path)
    return kept[path]
