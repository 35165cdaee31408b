"""Parts that the models of the zoo share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.features import feature_class
from trainer_module.models import undemanding_models
from trainer_module.problem import Problem, TransformedFeature
from trainer_module.settings import ModelSettings

KerasTensors = Mapping[str, tf.Tensor]


def images_of(problem: Problem, kind: str) -> tuple[TransformedFeature, ...]:
    """The features that are images, for a model of a kind.

    Raises:
      TrainingError: if there is none.
    """
    images = problem.of_kind("image")
    if not images:
        found = ", ".join(f"{f.name} ({f.kind})" for f in problem.features)
        raise TrainingError(
            f"model {kind!r} needs an image feature, but the data has {found or 'no feature'}; "
            "give a column {type: image, height: ..., width: ...}, or use "
            f"{enumerate_names(undemanding_models(), 'or')}."
        )
    return images


def encode(
    features: Iterable[TransformedFeature], inputs: KerasTensors, embedding_size: int
) -> list[tf.Tensor]:
    """Each feature as [batch, n] float32, as its type encodes it: vectors and images flattened."""
    return [
        tf_keras.layers.Flatten(name=feature.layer_name("flat"))(
            feature_class(feature.kind).encode(feature, inputs[feature.name], embedding_size)
        )
        for feature in features
    ]


def concatenate(tensors: list[tf.Tensor]) -> tf.Tensor:
    """Side by side, or the only one as it is."""
    return tf_keras.layers.Concatenate()(tensors) if len(tensors) > 1 else tensors[0]


def hidden_layers(hidden: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    """Dense layers with ReLU, then dropout."""
    for units in settings.hidden_units:
        hidden = tf_keras.layers.Dense(units, activation="relu")(hidden)
    return tf_keras.layers.Dropout(settings.dropout)(hidden) if settings.dropout else hidden
