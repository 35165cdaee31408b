"""A convolutional network, that of the TensorFlow tutorial on distributed training.

https://www.tensorflow.org/tutorials/distribute/keras: a 3x3 convolution of 32 filters, 2x2
max-pooling and a dense layer of 64 units. More `filters` make it deeper.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.models import layers
from trainer_module.problem import Problem, TransformedFeature
from trainer_module.settings import ModelSettings


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model; features that are no images join after the convolutions.

    Raises:
      TrainingError: if there is no image, or one too small for so many poolings.
    """
    images = layers.images_of(problem, "cnn")
    inputs = problem.make_inputs()
    encoded = [_convolve(image, inputs[image.name], settings) for image in images]
    others = [feature for feature in problem.features if feature.kind != "image"]
    encoded += layers.encode(others, inputs, settings.embedding_size)
    hidden = layers.hidden_layers(layers.concatenate(encoded), settings)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="cnn")


def _convolve(image: TransformedFeature, pixels: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    for filters in settings.filters:
        if min(pixels.shape[1:3]) < 4:
            raise TrainingError(
                f"image {image.name!r} of {image.shape[0]}x{image.shape[1]} pixels is too small "
                f"for {len(settings.filters)} convolutions; use fewer filters or a larger image."
            )
        pixels = tf_keras.layers.Conv2D(filters, 3, activation="relu")(pixels)
        pixels = tf_keras.layers.MaxPooling2D()(pixels)
    return tf_keras.layers.Flatten()(pixels)
