"""The generators and discriminators of both kinds.

`gan` is made of dense layers alone; `dcgan` follows Radford et al. (2015, arXiv:1511.06434), with
filters of 4x4, as those of 5x5 leave a chequered pattern behind steps of 2 (Odena et al., 2016).
Its discriminator has no batch normalisation, as in TensorFlow's guide: with it, the generator of a
few thousand pictures covered fewer of them (a recall of 0.4 instead of 0.7 on the digits).
`normalise_convolutions` normalises its weights instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from trainer_module.families.generation.family import doublings

SLOPE = 0.2
"""Of LeakyReLU below 0."""
_FILTER = 4
_MOST_FILTERS = 512
_HIDDEN_UNITS = (256, 512, 1024)
_POWER_ITERATIONS = 8

layers = tf_keras.layers


@dataclass(frozen=True)
class NetworkShape:
    """What decides how large the two networks are, and what they take."""

    kind: str
    """`gan` or `dcgan`."""
    noise: int
    picture: tuple[int, int, int]
    """Height, width and channels."""
    classes: int = 0
    """0 where no class is asked for."""
    sizes: tuple[int, ...] = ()
    """Units of the dense layers, or filters of the convolutions, from the noise on; empty for the
    usual ones."""
    synchronises: bool = False
    """Whether batch normalisation takes the mean of all replicas."""


def build_generator(shape: NetworkShape, name: str = "generator") -> tf_keras.Model:
    """From noise [batch, noise] and a class [batch] int32, where there are classes, to pictures.

    Pictures are [batch, height, width, channels] float32 in -1..1.
    """
    inputs = {"noise": layers.Input([shape.noise], name="noise")}
    hidden = inputs["noise"]
    if shape.classes:
        inputs["label"] = layers.Input([], dtype="int32", name="label")
        wanted = layers.Lambda(lambda label: tf.one_hot(label, shape.classes))(inputs["label"])
        hidden = layers.Concatenate()([hidden, wanted])
    body = _generate_dense if shape.kind == "gan" else _generate_by_convolutions
    return tf_keras.Model(inputs, body(hidden, shape), name=name)


def _generate_dense(hidden: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    for units in shape.sizes or _HIDDEN_UNITS:
        hidden = layers.LeakyReLU(SLOPE)(layers.Dense(units)(hidden))
        hidden = _normalise(shape, 0.8)(hidden)
    hidden = layers.Dense(math.prod(shape.picture), activation="tanh")(hidden)
    return layers.Reshape(shape.picture)(hidden)


def _generate_by_convolutions(hidden: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    height, width, channels = shape.picture
    filters = _filters(shape)
    times = len(filters)
    base = (height >> times, width >> times, filters[0])
    hidden = layers.Dense(math.prod(base), use_bias=False)(hidden)
    hidden = layers.Reshape(base)(layers.ReLU()(_normalise(shape)(hidden)))
    for count in filters[1:]:
        hidden = _doubling(count, use_bias=False)(hidden)
        hidden = layers.ReLU()(_normalise(shape)(hidden))
    return _doubling(channels, activation="tanh")(hidden)


def build_discriminator(shape: NetworkShape) -> tf_keras.Model:
    """From pictures in -1..1, and a class where there are classes, to a logit [batch] float32.

    The class adds the product of its vector with the last features (Miyato and Koyama, 2018,
    arXiv:1802.05637).
    """
    inputs = {"picture": layers.Input(shape.picture, name="picture")}
    body = _judge_dense if shape.kind == "gan" else _judge_by_convolutions
    features = body(inputs["picture"], shape)
    logit = layers.Dense(1)(features)
    if shape.classes:
        inputs["label"] = layers.Input([], dtype="int32", name="label")
        vector = layers.Embedding(shape.classes, features.shape[-1])(inputs["label"])
        logit = layers.Add()([logit, layers.Dot(1)([features, vector])])
    logit = layers.Reshape([])(logit)
    return tf_keras.Model(inputs, logit, name="discriminator")


def _judge_dense(picture: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    hidden = layers.Flatten()(picture)
    for units in reversed(shape.sizes or _HIDDEN_UNITS):
        hidden = layers.LeakyReLU(SLOPE)(layers.Dense(units)(hidden))
    return hidden


def _judge_by_convolutions(picture: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    hidden = picture
    for count in reversed(_filters(shape)):
        hidden = layers.Conv2D(count, _FILTER, 2, "same", kernel_initializer=_start())(hidden)
        hidden = layers.LeakyReLU(SLOPE)(hidden)
    return layers.Flatten()(hidden)


def normalise_convolutions(network: tf_keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Divides the kernel of each convolution by its spectral norm, outside of all replicas.

    A discriminator that cannot become steeper keeps telling the generator where to go: spectral
    normalisation (Miyato et al., 2018, arXiv:1802.05957), of the weights themselves.
    """
    for layer in network.layers:
        if isinstance(layer, layers.Conv2D):
            strategy.extended.update(
                layer.kernel, lambda kernel: kernel.assign(kernel / spectral_norm(kernel))
            )


def spectral_norm(kernel: tf.Tensor) -> tf.Tensor:
    """The largest singular value of a kernel [..., filters] as a matrix of `filters` columns, [].

    By power iteration from the same vector each time, so that it is the same on all replicas.
    """
    filters = kernel.shape[-1]
    matrix = tf.reshape(kernel, [-1, filters])
    vector = tf.random.stateless_normal([filters, 1], [0, 1])
    for _ in range(_POWER_ITERATIONS):
        vector = tf.matmul(matrix, matrix @ tf.math.l2_normalize(vector), transpose_a=True)
    return tf.norm(matrix @ tf.math.l2_normalize(vector))


def _filters(shape: NetworkShape) -> Sequence[int]:
    """Those of the picture at each size, from the smallest on: half as many after each doubling."""
    if shape.sizes:
        return shape.sizes
    times = doublings(*shape.picture[:2])
    return [min(64 << place, _MOST_FILTERS) for place in reversed(range(times))]


def _doubling(filters: int, **options: object) -> tf_keras.layers.Layer:
    return layers.Conv2DTranspose(
        filters, _FILTER, 2, "same", kernel_initializer=_start(), **options
    )


def _start() -> tf_keras.initializers.Initializer:
    return tf_keras.initializers.RandomNormal(stddev=0.02)


def _normalise(shape: NetworkShape, momentum: float = 0.9) -> tf_keras.layers.Layer:
    return layers.BatchNormalization(momentum=momentum, synchronized=shape.synchronises)
