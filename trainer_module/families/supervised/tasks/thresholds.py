"""Classes in an order, as what lies between thresholds of one number."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tf_keras


@tf_keras.saving.register_keras_serializable("scopeline")
class CumulativeLogits(tf_keras.layers.Layer):
    """From [batch, 1] to the probabilities of classes, [batch, classes].

    The proportional odds model: McCullagh, 1980, "Regression Models for Ordinal Data",
    doi:10.1111/j.2517-6161.1980.tb01109.x.
    """

    APART = 2.0
    """The distance between thresholds at the start, where each class is the likeliest somewhere."""
    RATE = 10.0
    """How much faster than other weights the thresholds move: by the small steps that suit a
    network they would hardly leave their start, and classes in between would stay unlikely."""

    def __init__(self, classes: int, **options: Any) -> None:
        super().__init__(**options)
        self.classes = classes

    def build(self, input_shape: Any) -> None:
        """The lowest threshold, and how far each is above the one before it."""
        super().build(input_shape)
        lowest = -self.APART * (self.classes - 2) / 2 / self.RATE
        self.lowest = self.add_weight("lowest", (1,), initializer=_constant(lowest))
        step = math.log(math.expm1(self.APART)) / self.RATE  # Softplus makes `APART` of it.
        self.steps = self.add_weight("steps", (self.classes - 2,), initializer=_constant(step))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The differences between the probabilities of being at most in each class."""
        lowest = self.RATE * self.lowest
        above = lowest + tf.cumsum(tf.nn.softplus(self.RATE * self.steps))
        at_most = tf.sigmoid(tf.concat([lowest, above], 0) - inputs)
        ends = tf.zeros_like(at_most[:, :1])
        reached = tf.concat([ends, at_most, ends + 1], 1)
        return reached[:, 1:] - reached[:, :-1]

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), "classes": self.classes}


def _constant(value: float) -> tf_keras.initializers.Initializer:
    return tf_keras.initializers.Constant(value)
