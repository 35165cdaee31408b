"""Parts that the models of the zoo share."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping

import tensorflow as tf
import tf_keras

from trainer_module.features import feature_class
from trainer_module.problem import TransformedFeature
from trainer_module.settings import ModelSettings

KerasTensors = Mapping[str, tf.Tensor]


def encode(
    features: Iterable[TransformedFeature], inputs: KerasTensors, embedding_size: int
) -> list[tf.Tensor]:
    """Each feature as [batch, n] float32, as its type encodes it: vectors and images flattened."""
    return [
        tf_keras.layers.Flatten(name=layer_name(feature, "flat"))(
            feature_class(feature.kind).encode(feature, inputs[feature.name], embedding_size)
        )
        for feature in features
    ]


def embed(feature: TransformedFeature, indices: tf.Tensor, size: int) -> tf.Tensor:
    """The learnt vector of each value: [batch, n, size]."""
    return tf_keras.layers.Embedding(
        feature.vocabulary_size, size, name=layer_name(feature, "embedding")
    )(indices)


def layer_name(feature: TransformedFeature, role: str) -> str:
    """A name that TensorFlow allows, whatever the column is called."""
    name = feature.name
    if not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.-]*", name):
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        # The hash keeps columns apart that differ in the rest alone.
        name = f"column_{safe}_{zlib.crc32(name.encode()):08x}"
    return f"{name}_{role}"


def concatenate(tensors: list[tf.Tensor]) -> tf.Tensor:
    """Side by side, or the only one as it is."""
    return tf_keras.layers.Concatenate()(tensors) if len(tensors) > 1 else tensors[0]


def hidden_layers(hidden: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    """Dense layers with ReLU, then dropout."""
    for units in settings.hidden_units:
        hidden = tf_keras.layers.Dense(units, activation="relu")(hidden)
    return tf_keras.layers.Dropout(settings.dropout)(hidden) if settings.dropout else hidden
