"""Parts that the models of the zoo share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf
import tf_keras

from trainer_module.problem import TransformedFeature
from trainer_module.settings import ModelSettings

KerasTensors = Mapping[str, tf.Tensor]


def encode(
    features: Iterable[TransformedFeature], inputs: KerasTensors, embedding_size: int
) -> list[tf.Tensor]:
    """Each feature as [batch, n] float32: categorical ones embedded, images flattened."""
    return [
        tf_keras.layers.Flatten(name=f"{feature.name}_flat")(
            embed(feature, inputs[feature.name], embedding_size)
            if feature.kind == "categorical"
            else inputs[feature.name]
        )
        for feature in features
    ]


def embed(feature: TransformedFeature, indices: tf.Tensor, size: int) -> tf.Tensor:
    """The learnt vector of each value: [batch, n, size]."""
    name = f"{feature.name}_embedding"
    return tf_keras.layers.Embedding(feature.vocabulary_size, size, name=name)(indices)


def concatenate(tensors: list[tf.Tensor]) -> tf.Tensor:
    """Side by side, or the only one as it is."""
    return tf_keras.layers.Concatenate()(tensors) if len(tensors) > 1 else tensors[0]


def hidden_layers(hidden: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    """Dense layers with ReLU, then dropout."""
    for units in settings.hidden_units:
        hidden = tf_keras.layers.Dense(units, activation="relu")(hidden)
    return tf_keras.layers.Dropout(settings.dropout)(hidden) if settings.dropout else hidden
