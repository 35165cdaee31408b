"""Loads SavedModels for servers and evaluation.

The functions import TensorFlow when they are called, because servers choose the time of the import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Loaded = TypeVar("_Loaded")


def load_exported(path: str) -> Any:
    """Returns a SavedModel, after registering the operations that it needs.

    Args:
      path: the folder of the SavedModel.

    Raises:
      Exception: any error of TensorFlow; damaged files cause errors of various types.
    """
    import tensorflow as tf

    return with_operations(lambda: tf.saved_model.load(path))


def with_operations(load: Callable[[], _Loaded]) -> _Loaded:
    """Returns the result of `load`.

    If an operation is missing, the function registers more operations and calls `load` again.

    Raises:
      Exception: any error of `load`.
    """
    import tensorflow as tf

    try:
        return load()
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        # The import registers the operations of BERT's WordPiece, which few models need.
        import tensorflow_text  # noqa: F401

        return load()
