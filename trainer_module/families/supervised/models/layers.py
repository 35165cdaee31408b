"""Functions that build parts of several built-in models."""

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
"""The momentum of batch normalisation in networks that are trained from scratch, as in PyTorch.

With the 0.99 and 0.999 of Keras's networks, the statistics of the random initial weights would
matter for thousands of steps.
"""


def convolutional_model(
    problem: Problem,
    settings: ModelSettings,
    kind: str,
    convolve: Callable[[TransformedFeature, tf.Tensor], tf.Tensor],
) -> tf_keras.Model:
    """Returns an uncompiled model of images; other features are added after the convolutions.

    Args:
      problem: the features and the label.
      settings: the settings of the model.
      kind: the name of the model.
      convolve: a function from a feature and its pixels, [batch, height, width, channels], to the
        encoded image, [batch, n].

    Raises:
      TrainingError: there is no image.
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
      TrainingError: there is no image.
    """
    images = problem.of_kind("image")
    if not images:
        content = ", ".join(f"{f.name} ({f.kind})" for f in problem.features)
        raise TrainingError(
            f"model {kind!r} needs an image feature, but the data has {content or 'no feature'}; "
            "set {type: image, height: ..., width: ...} for a column, or use the model "
            f"{enumerate_names(unrestricted_models(), 'or')}."
        )
    return images


def encode(
    features: Iterable[TransformedFeature], inputs: KerasTensors, embedding_size: int
) -> list[tf.Tensor]:
    """Returns the encoding of each feature, [batch, n] float32."""
    return [
        tf_keras.layers.Flatten(name=feature.layer_name("flat"))(
            feature_class(feature.kind).encode(feature, inputs[feature.name], embedding_size)
        )
        for feature in features
    ]


def concatenate(tensors: list[tf.Tensor]) -> tf.Tensor:
    """Returns the concatenated tensors, or a single tensor unchanged."""
    return tf_keras.layers.Concatenate()(tensors) if len(tensors) > 1 else tensors[0]


def normalization() -> tf_keras.layers.BatchNormalization:
    """Returns a layer of batch normalisation over the examples of all replicas."""
    is_shared = tf.distribute.get_strategy().num_replicas_in_sync > 1
    return tf_keras.layers.BatchNormalization(momentum=FRESH_MOMENTUM, synchronized=is_shared)


def hidden_layers(hidden: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    """Returns the output of dense layers with ReLU, and of dropout."""
    for units in settings.hidden_units:
        hidden = tf_keras.layers.Dense(units, activation="relu")(hidden)
    return tf_keras.layers.Dropout(settings.dropout)(hidden) if settings.dropout else hidden
