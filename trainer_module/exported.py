"""Loads exported models. Imports TensorFlow where it is used: servers decide when that is."""

from __future__ import annotations

from typing import Any


def load_exported(path: str) -> Any:
    """A SavedModel, with the operations that it needs.

    Args:
      path: its folder.

    Raises:
      Exception: as TensorFlow raises it, which is all sorts of things for damaged files.
    """
    import tensorflow as tf

    try:
        return tf.saved_model.load(path)
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        # Registers the operations by which BERT cuts words, which few models need.
        import tensorflow_text  # noqa: F401

        return tf.saved_model.load(path)
