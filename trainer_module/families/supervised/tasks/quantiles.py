"""A number together with quantiles of it, which say how far the label may be from it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.settings.tasks import LabelStatistics


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberAndQuantiles(tf_keras.layers.Rescaling):
    """Brings [batch, 1 + quantiles] to the label's scale; the quantiles never cross.

    Sorting what crosses brings it nearer to the true quantiles: Chernozhukov et al., 2010,
    "Quantile and Probability Curves Without Crossing", doi:10.3982/ECTA7880.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The number first, then the quantiles in ascending order."""
        scaled = super().call(inputs)
        return tf.concat([scaled[:, :1], tf.sort(scaled[:, 1:], axis=1)], 1)


def make_activation(problem: LabelStatistics, levels: Sequence[float]) -> NumberAndQuantiles:
    """A new activation: it begins with the quantiles of a normal distribution."""
    normal = NormalDist(problem.label_mean, problem.label_deviation)
    begin = [problem.label_mean, *(normal.inv_cdf(level) for level in levels)]
    return NumberAndQuantiles(problem.label_deviation, begin, dtype=tf.float32)


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberAndPinballLoss(tf_keras.losses.Loss):
    """A loss of the number, and the mean pinball loss of its quantiles.

    Koenker and Bassett, 1978, "Regression Quantiles", doi:10.2307/1913643.

    Args:
      number: the loss of the number, by labels and predictions that are divided by `unit`.
      levels: of the quantiles, ascending.
      unit: without it a squared error in large units would leave the quantiles no say.
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
        """Labels [batch, 1] and outputs [batch, 1 + quantiles] to losses [batch]."""
        truth = tf.reshape(tf.cast(y_true, y_pred.dtype), [-1, 1]) / self._unit
        output = y_pred / self._unit
        error, levels = truth - output[:, 1:], tf.constant(self._levels, y_pred.dtype)
        pinball = tf.reduce_mean(tf.maximum(levels * error, (levels - 1) * error), 1)
        return self._number.call(truth, output[:, :1]) + pinball

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        number = tf_keras.losses.serialize(self._number)
        own = {"number": number, "levels": self._levels, "unit": self._unit}
        return {**super().get_config(), **own}


class _OfTheNumber:
    """A metric that leaves the quantiles aside."""

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> Any:
        """Of outputs [batch, 1 + quantiles]."""
        return super().update_state(y_true, y_pred[:, :1], sample_weight)  # type: ignore[misc]


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberMeanAbsoluteError(_OfTheNumber, tf_keras.metrics.MeanAbsoluteError):
    """The mean absolute error of the number."""


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberRootMeanSquaredError(_OfTheNumber, tf_keras.metrics.RootMeanSquaredError):
    """The root of the number's mean squared error."""
