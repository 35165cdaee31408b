"""A pushed version, loaded: what its signatures answer. Imports TensorFlow where it is used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer_module.errors import DataError
from trainer_module.interface import ModelInterface, read_interface

Arrays = dict[str, np.ndarray]

RAW, EXAMPLES = "serving_raw", "serving_default"
"""The signatures that serve: of a tensor per column, and of serialised tf.Examples."""


@dataclass(frozen=True)
class Model:
    """A version that answers; may be asked by several threads at once."""

    folder: Path
    interface: ModelInterface
    _loaded: Any
    """Holds the variables that the signatures use."""

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Answers by name for tensors by the names of requests, [batch, ...] each."""
        import tensorflow as tf

        tensors = {name: tf.constant(values) for name, values in columns.items()}
        return self._ask(RAW, tensors)

    def predict_examples(self, examples: Sequence[bytes]) -> Arrays:
        """Answers by name for serialised tf.Examples."""
        import tensorflow as tf

        return self._ask(EXAMPLES, {"examples": tf.constant(list(examples), tf.string)})

    def _ask(self, signature: str, tensors: Mapping[str, Any]) -> Arrays:
        answers = self._loaded.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in answers.items()}


def load_model(folder: Path) -> Model:
    """Loads a version.

    Raises:
      DataError: it is damaged, or no version of ours.
    """
    interface = read_interface(folder)
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    try:
        return Model(folder, interface, _load(folder))
    except (OSError, ValueError, KeyError, AttributeError, tf.errors.OpError) as error:
        said = " ".join(str(error).split())[:300]
        raise DataError(
            f"{folder} cannot be loaded ({type(error).__name__}: {said}): it is damaged; push it"
            " again, or go back by `rollback`."
        ) from error


def _load(folder: Path) -> Any:
    import tensorflow as tf

    try:
        return tf.saved_model.load(str(folder))
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        # Registers the operations by which BERT cuts words, which few models need.
        import tensorflow_text  # noqa: F401

        return tf.saved_model.load(str(folder))
