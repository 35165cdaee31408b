"""Losses made of other losses: in units of their own, and in those that they are shown in."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

FARTHEST = 20.0
"""An exponent from which on no larger one is worth telling apart: half a billion times 1."""


def show_as(loss: tf.Tensor, factor: float) -> tf.Tensor:
    """So many times the loss, with the gradients of the loss itself.

    What is shown of a number's loss is in units of the label. Gradients in units of its deviation
    are neither too large for float16, whose largest number is 65,504, nor too small.
    """
    return tf.stop_gradient(loss * factor) + (loss - tf.stop_gradient(loss))


@tf_keras.saving.register_keras_serializable("scopeline")
def bounded_exponential(numbers: tf.Tensor) -> tf.Tensor:
    """Finite for every number: one row far from all others would make a metric infinite."""
    return tf.exp(tf.minimum(numbers, FARTHEST))


class WrappedLoss(tf_keras.losses.Loss):
    """A loss that makes something of another one, which is saved with it."""

    def __init__(self, loss: Any, name: str, **options: Any) -> None:
        """Takes the other loss: of Keras's classes, a function, or its configuration."""
        super().__init__(name=name, **options)
        self._loss = tf_keras.losses.get(loss)

    def wrapped(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """The losses of the other one, [batch]."""
        is_class = isinstance(self._loss, tf_keras.losses.Loss)
        return (self._loss.call if is_class else self._loss)(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), "loss": tf_keras.losses.serialize(self._loss)}


@tf_keras.saving.register_keras_serializable("scopeline")
class ShownLoss(WrappedLoss):
    """A loss in the units of what it is given, with gradients as if it were divided by `factor`."""

    def __init__(self, loss: Any, factor: float, name: str = "shown_loss", **options: Any) -> None:
        """Takes what is computed, and how many of its units the loss learnt by has."""
        super().__init__(loss, name, **options)
        self._factor = factor

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Losses [batch], as those of `loss`."""
        return show_as(self.wrapped(y_true, y_pred) / self._factor, self._factor)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), "factor": self._factor}
