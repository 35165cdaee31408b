"""The networks of pictures that are trained from scratch: `cnn`, and the default `convnet`.

`cnn`: https://www.tensorflow.org/tutorials/distribute/keras: a 3x3 convolution of 32 filters, 2x2
max-pooling and a dense layer of 64 units. More `filters` make it deeper; `layers` define each
layer, such as the two convolutions without pooling of https://www.tensorflow.org/guide/tpu.

`convnet`: stages of two 3x3 convolutions with batch normalisation (Ioffe and Szegedy, 2015,
arXiv:1502.03167) and a max-pooling between them, as in VGG (Simonyan and Zisserman, 2014,
arXiv:1409.1556). The features of the last stage are averaged over their places (Lin et al., 2013,
arXiv:1312.4400), so that the number of weights does not grow with the picture, and few pictures are
enough.
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


def build_cnn(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model; features other than images join after the convolutions.

    Raises:
      TrainingError: there is no image, or an image is too small for the layers.
    """
    if settings.layers is not None:
        convolve = partial(_apply_layers, settings.layers)
    else:
        convolve = partial(_convolve_and_pool, settings.filters)
    return layers.convolutional_model(problem, settings, "cnn", convolve)


def _convolve_and_pool(every: list[int], image: TransformedFeature, pixels: tf.Tensor) -> tf.Tensor:
    for filters in every:
        if min(pixels.shape[1:3]) < 4:
            raise TrainingError(
                f"image {image.name!r} of {image.shape[0]}x{image.shape[1]} pixels is too small "
                f"for {len(every)} convolutions; use fewer filters or a larger image."
            )
        pixels = tf_keras.layers.Conv2D(filters, 3, activation="relu")(pixels)
        pixels = tf_keras.layers.MaxPooling2D()(pixels)
    return tf_keras.layers.Flatten()(pixels)


def _apply_layers(
    every: list[PictureLayer], image: TransformedFeature, pixels: tf.Tensor
) -> tf.Tensor:
    """Applies all layers to pixels [batch, height, width, channels] and returns [batch, n]."""
    if why := too_small_for(every, *image.shape[:2]):
        raise TrainingError(f"model.layers: image {image.name!r}: {why}.")
    for layer in every:
        pixels = _make_layer(layer)(pixels)
    return tf_keras.layers.Flatten()(pixels)


def _make_layer(layer: PictureLayer) -> tf_keras.layers.Layer:
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


FIRST_FILTERS, MAX_FILTERS = 16, 128
"""The filters of the first stage and of the largest stage by default; they double with each stage.
"""

LARGEST_SIDE = 48
"""The largest smaller side, in pixels, of the first stage's input.

Larger pictures pass through pairs of a convolution and a max-pooling first, so that a step costs
little more.
"""

SMALLEST_SIDE = 4
"""The smallest smaller side, in pixels, of the last stage's input by default."""

CONVOLUTIONS = 2
"""The number of convolutions in each stage."""


def build_convnet(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model; features other than images join after the convolutions.

    Raises:
      TrainingError: there is no image, or an image is too small for the number of `filters`.
    """
    convolve = partial(_convolve_in_stages, settings.filters)
    return layers.convolutional_model(problem, settings, "convnet", convolve)


def default_filters(side: int) -> list[int]:
    """Returns the filters of each stage for pictures with a smaller side.

    Args:
      side: the smaller side of the first stage's input, in pixels.
    """
    filters = [FIRST_FILTERS]
    while side // 2 >= SMALLEST_SIDE:
        side //= 2
        filters.append(min(2 * filters[-1], MAX_FILTERS))
    return filters


def _convolve_in_stages(
    given_filters: list[int], image: TransformedFeature, pixels: tf.Tensor
) -> tf.Tensor:
    """Applies all stages to pixels and returns [batch, filters of the last stage]."""
    first = (given_filters or [FIRST_FILTERS])[0]
    while _side(pixels) > LARGEST_SIDE:
        pixels = tf_keras.layers.MaxPooling2D()(_convolution(pixels, first))
    filters = given_filters or default_filters(_side(pixels))
    if _side(pixels) >> (len(filters) - 1) < 1:
        raise TrainingError(
            f"image {image.name!r} of {image.shape[0]}x{image.shape[1]} pixels is too small "
            f"for {len(filters)} stages; use fewer filters or a larger image."
        )
    for stage, width in enumerate(filters):
        if stage:
            pixels = tf_keras.layers.MaxPooling2D()(pixels)
        for _ in range(CONVOLUTIONS):
            pixels = _convolution(pixels, width)
    return tf_keras.layers.GlobalAveragePooling2D()(pixels)


def _side(pixels: tf.Tensor) -> int:
    return int(min(pixels.shape[1:3]))


def _convolution(pixels: tf.Tensor, filters: int) -> tf.Tensor:
    """Applies a 3x3 convolution whose output is normalised over the examples of all replicas.

    Therefore a step does not depend on the number of replicas.
    """
    pixels = tf_keras.layers.Conv2D(
        filters, 3, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(pixels)
    return tf_keras.layers.ReLU()(layers.normalization()(pixels))
