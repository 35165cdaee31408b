"""A convolutional network, that of the TensorFlow tutorial on distributed training.

https://www.tensorflow.org/tutorials/distribute/keras: a 3x3 convolution of 32 filters, 2x2
max-pooling and a dense layer of 64 units. More `filters` make it deeper; `layers` give each layer,
such as the two convolutions without pooling of https://www.tensorflow.org/guide/tpu.
"""

from __future__ import annotations

from functools import partial

import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.families.supervised.models import layers
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import PictureLayer, too_small_for


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model; features that are no images join after the convolutions.

    Raises:
      TrainingError: if there is no image, or one too small for the layers.
    """
    if settings.layers is not None:
        convolve = partial(_apply, settings.layers)
    else:
        convolve = partial(_convolve, settings.filters)
    return layers.convolutional_model(problem, settings, "cnn", convolve)


def _convolve(every: list[int], image: TransformedFeature, pixels: tf.Tensor) -> tf.Tensor:
    for filters in every:
        if min(pixels.shape[1:3]) < 4:
            raise TrainingError(
                f"image {image.name!r} of {image.shape[0]}x{image.shape[1]} pixels is too small "
                f"for {len(every)} convolutions; use fewer filters or a larger image."
            )
        pixels = tf_keras.layers.Conv2D(filters, 3, activation="relu")(pixels)
        pixels = tf_keras.layers.MaxPooling2D()(pixels)
    return tf_keras.layers.Flatten()(pixels)


def _apply(every: list[PictureLayer], image: TransformedFeature, pixels: tf.Tensor) -> tf.Tensor:
    """[batch, height, width, channels] through each layer, to [batch, n]."""
    if why := too_small_for(every, *image.shape[:2]):
        raise TrainingError(f"model.layers: image {image.name!r}: {why}.")
    for layer in every:
        pixels = _make(layer)(pixels)
    return tf_keras.layers.Flatten()(pixels)


def _make(layer: PictureLayer) -> tf_keras.layers.Layer:
    if layer.conv is not None:
        return tf_keras.layers.Conv2D(
            layer.conv,
            layer.size,
            strides=layer.stride,
            padding=layer.padding,
            activation=layer.activation,
        )
    if layer.pool is not None:
        return tf_keras.layers.MaxPooling2D(layer.pool)
    if layer.dropout is not None:
        return tf_keras.layers.Dropout(layer.dropout)
    return layers.normalization()
