"""Loads exported models. Imports TensorFlow where it is used: servers decide when that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Loaded = TypeVar("_Loaded")


def load_exported(path: str) -> Any:
    """Returns a SavedModel, with the operations that it needs.

    Args:
      path: its folder.

    Raises:
      Exception: as TensorFlow raises it, which is all sorts of things for damaged files.
    """
    import tensorflow as tf

    return with_operations(lambda: tf.saved_model.load(path))


def with_operations(load: Callable[[], _Loaded]) -> _Loaded:
    """What `load` gives, which is called again with more operations if it lacks one.

    Raises:
      Exception: as `load` raises it.
    """
    import tensorflow as tf

    try:
        return load()
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        # Registers the operations by which BERT cuts words, which few models need.
        import tensorflow_text  # noqa: F401

        return load()
