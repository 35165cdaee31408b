"""A convolutional network, that of the TensorFlow tutorial on distributed training.

https://www.tensorflow.org/tutorials/distribute/keras: a 3x3 convolution of 32 filters, 2x2
max-pooling and a dense layer of 64 units. More `filters` make it deeper.
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


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model; features that are no images join after the convolutions.

    Raises:
      TrainingError: if there is no image, or one too small for so many poolings.
    """
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
