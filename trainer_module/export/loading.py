"""Loads exported models, importing TensorFlow on first use, as servers control when that
happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Loaded = TypeVar("_Loaded")


def load_exported(path: str) -> Any:
    """Returns a SavedModel, after registering the operations that it needs.

    Args:
      path: its folder.

    Raises:
      Exception: as TensorFlow raises it; damaged files cause various types.
    """
    import tensorflow as tf

    return with_operations(lambda: tf.saved_model.load(path))


def with_operations(load: Callable[[], _Loaded]) -> _Loaded:
    """Returns the result of `load`, which is called again with more operations if one is missing.

    Raises:
      Exception: as `load` raises it.
    """
    import tensorflow as tf

    try:
        return load()
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        # Registers the operations of BERT's WordPiece, which few models need.
        import tensorflow_text  # noqa: F401

        return load()
