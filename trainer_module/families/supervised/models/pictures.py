"""The models of pictures that are trained from scratch: `cnn`, and the default `convnet`.

`cnn` has a 3x3 convolution of 32 filters, 2x2 max-pooling and a dense layer of 64 units, as in
https://www.tensorflow.org/tutorials/distribute/keras. More `filters` add convolutions. `layers`
define each layer, such as two convolutions without pooling as in
https://www.tensorflow.org/guide/tpu.

`convnet` has stages of two 3x3 convolutions with batch normalisation (Ioffe and Szegedy, 2015,
arXiv:1502.03167), and max-pooling between stages, as VGG (Simonyan and Zisserman, 2014,
arXiv:1409.1556). The features of the last stage are averaged over the picture (Lin et al., 2013,
arXiv:1312.4400). The number of weights therefore does not depend on the size of pictures, and the
model can be trained with few pictures.
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
    """Returns the uncompiled model; other features are added after the convolutions.

    Raises:
      TrainingError: there is no image, or an image is too small for the layers.
    """
    if settings.layers is not None:
        convolve = partial(_apply_layers, settings.layers)
    else:
        convolve = partial(_convolve_and_pool, settings.filters)
    return layers.convolutional_model(problem, settings, "cnn", convolve)


def _convolve_and_pool(
    filters: list[int], image: TransformedFeature, pixels: tf.Tensor
) -> tf.Tensor:
    for count in filters:
        if min(pixels.shape[1:3]) < 4:
            raise TrainingError(
                f"image {image.name!r} of {image.shape[0]}x{image.shape[1]} pixels is too small "
                f"for {len(filters)} convolutions; give fewer numbers in model.filters, or a "
                "larger height and width."
            )
        pixels = tf_keras.layers.Conv2D(count, 3, activation="relu")(pixels)
        pixels = tf_keras.layers.MaxPooling2D()(pixels)
    return tf_keras.layers.Flatten()(pixels)


def _apply_layers(
    settings: list[PictureLayer], image: TransformedFeature, pixels: tf.Tensor
) -> tf.Tensor:
    """Returns the output of all layers, [batch, n], for pixels [batch, height, width, channels]."""
    if reason := too_small_for(settings, *image.shape[:2]):
        raise TrainingError(f"model.layers: image {image.name!r}: {reason}.")
    for layer in settings:
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
"""The default numbers of filters: the first stage's number, which doubles with each stage up to the
maximum.
"""

LARGEST_SIDE = 48
"""The maximum of the smaller side, in pixels, of the first stage's input.

Larger pictures first pass through pairs of a convolution and max-pooling, as full stages would be
slow.
"""

SMALLEST_SIDE = 4
"""The minimum of the smaller side, in pixels, of the last stage's input by default."""

CONVOLUTIONS = 2
"""The number of convolutions in each stage."""


def build_convnet(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model; other features are added after the convolutions.

    Raises:
      TrainingError: there is no image, or an image is too small for the number of `filters`.
    """
    convolve = partial(_convolve_in_stages, settings.filters)
    return layers.convolutional_model(problem, settings, "convnet", convolve)


def default_filters(side: int) -> list[int]:
    """Returns the default number of filters of each stage.

    Args:
      side: the smaller side of the first stage's input, in pixels.
    """
    filters = [FIRST_FILTERS]
    while side // 2 >= SMALLEST_SIDE:
        side //= 2
        filters.append(min(2 * filters[-1], MAX_FILTERS))
    return filters


def _convolve_in_stages(
    configured: list[int], image: TransformedFeature, pixels: tf.Tensor
) -> tf.Tensor:
    """Returns the output of all stages, [batch, filters of the last stage].

    Args:
      configured: the filters of each stage in the config, or an empty list for the default.
      image: the feature, for messages.
      pixels: the pixels, [batch, height, width, channels].
    """
    first = (configured or [FIRST_FILTERS])[0]
    while _side(pixels) > LARGEST_SIDE:
        pixels = tf_keras.layers.MaxPooling2D()(_convolution(pixels, first))
    filters = configured or default_filters(_side(pixels))
    if _side(pixels) >> (len(filters) - 1) < 1:
        raise TrainingError(
            f"image {image.name!r} of {image.shape[0]}x{image.shape[1]} pixels is too small "
            f"for {len(filters)} stages; give fewer numbers in model.filters, or a larger height "
            "and width."
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
    """Returns the output of a 3x3 convolution, batch normalisation and ReLU."""
    pixels = tf_keras.layers.Conv2D(
        filters, 3, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(pixels)
    return tf_keras.layers.ReLU()(layers.normalization()(pixels))
