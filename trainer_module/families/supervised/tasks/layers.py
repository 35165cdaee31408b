"""The layers, losses and metrics of single tasks: quantiles of a number, thresholds of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.settings.tasks import LabelStatistics


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberAndQuantiles(tf_keras.layers.Rescaling):
    """Brings [batch, 1 + quantiles] to the label's scale, with quantiles that never cross.

    Sorting crossing quantiles brings them nearer to the true quantiles: Chernozhukov et al., 2010,
    "Quantile and Probability Curves Without Crossing", doi:10.3982/ECTA7880.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the number first, then the quantiles in ascending order."""
        scaled = super().call(inputs)
        return tf.concat([scaled[:, :1], tf.sort(scaled[:, 1:], axis=1)], 1)


def make_number_and_quantiles(
    problem: LabelStatistics, levels: Sequence[float]
) -> NumberAndQuantiles:
    """Returns a new activation that starts with the quantiles of a normal distribution."""
    normal = NormalDist(problem.label_mean, problem.label_deviation)
    begin = [problem.label_mean, *(normal.inv_cdf(level) for level in levels)]
    return NumberAndQuantiles(problem.label_deviation, begin, dtype=tf.float32)


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberAndPinballLoss(tf_keras.losses.Loss):
    """A loss of the number, plus the mean pinball loss of its quantiles.

    Koenker and Bassett, 1978, "Regression Quantiles", doi:10.2307/1913643.

    Args:
      number: the loss of the number, by labels and predictions that are divided by `unit`.
      levels: the levels of the quantiles, ascending.
      unit: the divisor of labels and predictions, so that a squared error in large units does not
        dominate the quantiles' loss.
    """

    def __init__(
        self,
        number: tf_keras.losses.Loss | dict[str, Any],
        levels: Sequence[float],
        unit: float,
        name: str = "number_and_pinball_loss",
        **options: Any,
    ) -> None:
        super().__init__(name=name, **options)
        if isinstance(number, dict):
            number = tf_keras.losses.deserialize(number)
        self._number: tf_keras.losses.Loss = number
        self._levels, self._unit = [float(level) for level in levels], float(unit)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch], of labels [batch, 1] and outputs [batch, 1 + quantiles]."""
        truth = tf.reshape(tf.cast(y_true, y_pred.dtype), [-1, 1]) / self._unit
        output = y_pred / self._unit
        error, levels = truth - output[:, 1:], tf.constant(self._levels, y_pred.dtype)
        pinball = tf.reduce_mean(tf.maximum(levels * error, (levels - 1) * error), 1)
        return self._number.call(truth, output[:, :1]) + pinball

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        number = tf_keras.losses.serialize(self._number)
        own = {"number": number, "levels": self._levels, "unit": self._unit}
        return {**super().get_config(), **own}


class _NumberMetric:
    """A metric of the number, which ignores the quantiles."""

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> Any:
        """Updates the metric with the first of the outputs [batch, 1 + quantiles]."""
        return super().update_state(y_true, y_pred[:, :1], sample_weight)  # type: ignore[misc]


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberMeanAbsoluteError(_NumberMetric, tf_keras.metrics.MeanAbsoluteError):
    """The mean absolute error of the number."""


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberRootMeanSquaredError(_NumberMetric, tf_keras.metrics.RootMeanSquaredError):
    """The root of the number's mean squared error."""


@tf_keras.saving.register_keras_serializable("scopeline")
class CumulativeLogits(tf_keras.layers.Layer):
    """Turns a number, [batch, 1], into the probabilities of ordered classes, [batch, classes].

    The proportional odds model: McCullagh, 1980, "Regression Models for Ordinal Data",
    doi:10.1111/j.2517-6161.1980.tb01109.x.
    """

    APART = 2.0
    """The initial distance between thresholds, at which each class is the most probable for some
    number.
    """
    RATE = 10.0
    """The factor of the thresholds' learning rate. With a network's small steps, the thresholds
    would hardly move, and the classes in between would stay improbable.
    """

    def __init__(self, classes: int, **options: Any) -> None:
        super().__init__(**options)
        self.classes = classes

    def build(self, input_shape: Any) -> None:
        """Creates the lowest threshold and the distances between thresholds."""
        super().build(input_shape)
        lowest = -self.APART * (self.classes - 2) / 2 / self.RATE
        self.lowest = self.add_weight("lowest", (1,), initializer=_constant(lowest))
        step = math.log(math.expm1(self.APART)) / self.RATE  # Its softplus is `APART`.
        self.steps = self.add_weight("steps", (self.classes - 2,), initializer=_constant(step))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the differences between the cumulative probabilities of the classes."""
        lowest = self.RATE * self.lowest
        above = lowest + tf.cumsum(tf.nn.softplus(self.RATE * self.steps))
        at_most = tf.sigmoid(tf.concat([lowest, above], 0) - inputs)
        ends = tf.zeros_like(at_most[:, :1])
        reached = tf.concat([ends, at_most, ends + 1], 1)
        return reached[:, 1:] - reached[:, :-1]

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "classes": self.classes}


def _constant(value: float) -> tf_keras.initializers.Initializer:
    return tf_keras.initializers.Constant(value)
