"""A reference for exported models: the transform graph and the Keras model, without signatures.

The outputs of an exported model's signatures can be compared with its predictions.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.errors import TrainingError, shorten
from trainer_module.export.saving import apply_with_outputs, served
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import is_forest, load_builder

_LAYERS = (
    "trainer_module.features.text.layers",
    "trainer_module.families.supervised.models.members",
    "trainer_module.families.supervised.tasks.layers",
    "trainer_module.families.supervised.losses",
    "trainer_module.families.supervised.trees.model",
    "trainer_module.families.supervised.ensemble.model",
    "trainer_module.families.supervised.ensemble.linear",
)
"""The modules with custom layers. A search may have chosen another kind of model than the config's.
"""


class KerasReference:
    """A model that predicts with Transform's graph and Keras."""

    def __init__(self, model: str, transform_graph: str, settings: TrainerSettings) -> None:
        """Loads the transform graph and the Keras model.

        Args:
          model: the folder of the SavedModel.
          transform_graph: the folder of Transform's artifact.
          settings: the label, the weight, the task, the features and the kind of the model.

        Raises:
          TrainingError: Keras cannot load the model, such as one with the code of others.
        """
        output = tft.TFTransformOutput(transform_graph)
        self._spec = output.raw_feature_spec()
        self._transform = output.transform_features_layer()
        self._problem = Problem.from_transform(
            output, settings.label_task, settings.label, settings.features, settings.weight
        )
        self._keras = _load(model, settings.model.kind)
        self._settings = settings.model
        self._apply = apply_with_outputs(self._keras, self._problem, settings.model)

    def answer(self, examples: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Returns the predictions for serialised tf.Examples, which contain their labels.

        Returns:
          By the names that clients read, [examples, ...] each; text as bytes.

        Raises:
          tf.errors.InvalidArgumentError: the transform graph cannot take an example.
        """
        raw = tf.io.parse_example(tf.constant(list(examples), tf.string), self._spec)
        transformed = self._transform(raw)
        names = getattr(self._keras, "input_names", None)
        names = names or [feature.name for feature in self._problem.features]
        given, beside = self._apply({name: transformed[name] for name in names})
        answer = served(given, beside, self._problem, self._settings)
        return {name: tensor.numpy() for name, tensor in answer.items()}


def _load(folder: str, kind: str) -> tf_keras.Model:
    for module in _LAYERS:
        importlib.import_module(module)
    try:
        if not is_forest(kind):
            load_builder(kind)
        return tf_keras.models.load_model(folder, compile=False)
    except Exception as error:  # A user's layers may raise any exception.
        raise TrainingError(
            f"Keras cannot load it ({type(error).__name__}: {shorten(error)})"
        ) from error
