"""Parts that the models of the zoo share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.features import feature_class
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import unrestricted_models

KerasTensors = Mapping[str, tf.Tensor]

FRESH_MOMENTUM = 0.9
"""Of batch normalisation in a network that begins from scratch, as in PyTorch: the 0.99 and 0.999
of Keras's networks take thousands of steps to leave the statistics of random weights behind."""


def convolutional_model(
    problem: Problem,
    settings: ModelSettings,
    kind: str,
    convolve: Callable[[TransformedFeature, tf.Tensor], tf.Tensor],
) -> tf_keras.Model:
    """Returns the uncompiled model; features that are no images join after the convolutions.

    Args:
      problem: has the features.
      settings: of the model.
      kind: its name.
      convolve: from a feature's pixels, [batch, height, width, channels], to [batch, n].

    Raises:
      TrainingError: if there is no image.
    """
    images = images_of(problem, kind)
    inputs = problem.make_inputs()
    encoded = [convolve(image, inputs[image.name]) for image in images]
    others = [feature for feature in problem.features if feature.kind != "image"]
    encoded += encode(others, inputs, settings.embedding_size)
    hidden = hidden_layers(concatenate(encoded), settings)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name=kind)


def images_of(problem: Problem, kind: str) -> tuple[TransformedFeature, ...]:
    """Returns the features that are images.

    Raises:
      TrainingError: there is none, which a model of this kind needs.
    """
    images = problem.of_kind("image")
    if not images:
        found = ", ".join(f"{f.name} ({f.kind})" for f in problem.features)
        raise TrainingError(
            f"model {kind!r} needs an image feature, but the data has {found or 'no feature'}; "
            "give a column {type: image, height: ..., width: ...}, or use "
            f"{enumerate_names(unrestricted_models(), 'or')}."
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


def normalization() -> tf_keras.layers.BatchNormalization:
    """Batch normalisation over the examples of all replicas, however many share a step."""
    is_shared = tf.distribute.get_strategy().num_replicas_in_sync > 1
    return tf_keras.layers.BatchNormalization(momentum=FRESH_MOMENTUM, synchronized=is_shared)


def hidden_layers(hidden: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    """Dense layers with ReLU, then dropout."""
    for units in settings.hidden_units:
        hidden = tf_keras.layers.Dense(units, activation="relu")(hidden)
    return tf_keras.layers.Dropout(settings.dropout)(hidden) if settings.dropout else hidden
