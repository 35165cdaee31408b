"""The layers, losses and metrics of quantiles and of ordered classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.losses import WrappedLoss
from trainer_module.plain_layer import PlainLayer
from trainer_module.settings.tasks import LabelStatistics


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberAndQuantiles(tf_keras.layers.Rescaling):
    """A layer that scales a number and quantiles to the label, and sorts the quantiles.

    Sorting moves predicted quantiles nearer to the true quantiles (Chernozhukov et al., 2010,
    "Quantile and Probability Curves Without Crossing", doi:10.3982/ECTA7880).
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the number and then the ascending quantiles, [batch, 1 + quantiles]."""
        scaled = super().call(inputs)
        return tf.concat([scaled[:, :1], tf.sort(scaled[:, 1:], axis=1)], 1)


def make_number_and_quantiles(
    problem: LabelStatistics, levels: Sequence[float]
) -> NumberAndQuantiles:
    """Returns a new layer that maps zeros to the label's mean and to quantiles around the mean.

    The quantiles are those of a normal distribution with the label's mean and deviation.
    """
    normal = NormalDist(problem.label_mean, problem.label_deviation)
    offsets = [problem.label_mean, *(normal.inv_cdf(level) for level in levels)]
    return NumberAndQuantiles(problem.label_deviation, offsets, dtype=tf.float32)


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberAndPinballLoss(tf_keras.losses.Loss):
    """A loss of the number, plus the mean pinball loss of the quantiles.

    The pinball loss is from Koenker and Bassett, 1978, "Regression Quantiles",
    doi:10.2307/1913643.

    Args:
      number: the loss of the number, which compares labels and predictions divided by `unit`.
      levels: the levels of the quantiles, ascending.
      unit: the number that divides labels and predictions, so that a squared error of large labels
        does not dominate the pinball loss.
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
        """Returns the losses, [batch].

        Args:
          y_true: the labels, [batch, 1].
          y_pred: the number and the quantiles, [batch, 1 + quantiles].
        """
        label = tf.reshape(tf.cast(y_true, y_pred.dtype), [-1, 1]) / self._unit
        output = y_pred / self._unit
        error, levels = label - output[:, 1:], tf.constant(self._levels, y_pred.dtype)
        pinball = tf.reduce_mean(tf.maximum(levels * error, (levels - 1) * error), 1)
        return self._number.call(label, output[:, :1]) + pinball

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        number = tf_keras.losses.serialize(self._number)
        own = {"number": number, "levels": self._levels, "unit": self._unit}
        return {**super().get_config(), **own}


@tf_keras.saving.register_keras_serializable("scopeline")
class FromLogarithm(PlainLayer):
    """A layer that returns from logarithms to the label's unit, [batch, 1 + quantiles].

    The exponential of the mean of logarithms is less than the mean of the label. Therefore the
    layer multiplies the number by a `BiasFactor`. Quantiles need no factor.
    """

    def __init__(self, least: float, largest: float, factor: float = 1.0, **options: Any) -> None:
        """Stores the range of the logarithms, and the initial factor."""
        super().__init__(**{"trainable": False, "dtype": tf.float32, **options})
        self._config = {"least": float(least), "largest": float(largest), "factor": float(factor)}

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the factor, which is set after training."""
        initial = _constant(self._config["factor"])
        self.factor = self.add_weight("factor", (), initializer=initial, trainable=False)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns the exponentials of logarithms that are clipped to the range."""
        clipped = tf.clip_by_value(inputs, self._config["least"], self._config["largest"])
        if training:  # Outside of the range, the gradient would be 0.
            clipped = inputs + tf.stop_gradient(clipped - inputs)
        values = tf.exp(clipped)
        if inputs.shape[-1] == 1:
            return self.factor * values
        return tf.concat([self.factor * values[:, :1], values[:, 1:]], 1)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._config}


def from_logarithm_of(model: tf_keras.Model) -> FromLogarithm | None:
    """Returns the layer with which a model ends, if the model learns logarithms."""
    return next((part for part in model.submodules if isinstance(part, FromLogarithm)), None)


def correct_bias(model: tf_keras.Model, factor: float) -> None:
    """Multiplies the numbers that a model predicts from logarithms by a `BiasFactor`.

    Call the function in the scope of the strategy.
    """
    layer = from_logarithm_of(model)
    if layer is not None and math.isfinite(factor):
        layer.factor.assign(layer.factor * factor)


@tf_keras.saving.register_keras_serializable("scopeline")
class LogarithmLoss(WrappedLoss):
    """A loss of the logarithms of labels and predictions."""

    def __init__(
        self, loss: Any, least: float, name: str = "logarithm_loss", **options: Any
    ) -> None:
        """Stores the loss of logarithms, and the least logarithm, which smaller labels take."""
        super().__init__(loss, name, **options)
        self._least = float(least)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch], for labels [batch, 1] and the output of `FromLogarithm`."""
        label = tf.maximum(tf.cast(y_true, y_pred.dtype), math.exp(self._least))
        return self.wrapped(tf.math.log(label), tf.math.log(y_pred))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "least": self._least}


@tf_keras.saving.register_keras_serializable("scopeline")
class BiasFactor(tf_keras.metrics.Metric):
    """The factor that removes the bias of exponentials of predicted logarithms.

    The ratio of the sums of labels and predicted numbers (the ratio estimator of Snowdon, 1991,
    doi:10.1139/x91-101) is shrunk towards 1 by its variance (James and Stein, 1961), as few large
    labels determine it. Duan's smearing estimate (1983, doi:10.1080/01621459.1983.10478017), the
    mean of the ratios of single examples, is far too large if small labels are hard to predict.
    """

    def __init__(self, name: str = "bias_factor", **options: Any) -> None:
        """Creates the sums of weighted labels, of numbers and of their products."""
        super().__init__(name=name, **options)
        self._sums = self.add_weight("sums", (5,), initializer="zeros")

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds labels [batch, 1] and outputs [batch, 1 + quantiles] to the sums."""
        label = tf.reshape(tf.cast(y_true, self._sums.dtype), [-1])
        number = tf.cast(y_pred[:, 0], label.dtype)
        if sample_weight is not None:
            weight = tf.reshape(tf.cast(sample_weight, label.dtype), [-1])
            label, number = weight * label, weight * number
        products = [label, number, label**2, label * number, number**2]
        self._sums.assign_add(tf.reduce_sum(tf.stack(products), 1))

    def reset_state(self) -> None:
        """Sets all sums to 0."""
        self._sums.assign(tf.zeros_like(self._sums))

    def result(self) -> tf.Tensor:
        """Returns the factor, or 1 without examples."""
        labels, numbers, squares, products, number_squares = tf.unstack(self._sums)
        ratio = tf.math.divide_no_nan(labels, numbers)
        residuals = tf.nn.relu(squares - 2 * ratio * products + ratio**2 * number_squares)
        variance = tf.math.divide_no_nan(residuals, numbers**2)
        noise = tf.math.divide_no_nan(variance, (ratio - 1) ** 2)
        return 1 + (ratio - 1) * tf.nn.relu(1 - noise)


class _NumberMetric:
    """A mixin that makes a metric ignore the quantiles."""

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> Any:
        """Updates the metric with the number, the first of the outputs [batch, 1 + quantiles]."""
        return super().update_state(y_true, y_pred[:, :1], sample_weight)  # type: ignore[misc]


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberMeanAbsoluteError(_NumberMetric, tf_keras.metrics.MeanAbsoluteError):
    """The mean absolute error of the number."""


@tf_keras.saving.register_keras_serializable("scopeline")
class NumberRootMeanSquaredError(_NumberMetric, tf_keras.metrics.RootMeanSquaredError):
    """The root mean squared error of the number."""


@tf_keras.saving.register_keras_serializable("scopeline")
class CumulativeLogits(PlainLayer):
    """A layer that maps a number, [batch, 1], to the probabilities of ordered classes, [batch,
    classes].

    The layer is the proportional odds model (McCullagh, 1980, "Regression Models for Ordinal Data",
    doi:10.1111/j.2517-6161.1980.tb01109.x).
    """

    APART = 2.0
    """The initial distance between thresholds. At this distance, each class is the most probable
    class of some number.
    """
    RATE = 10.0
    """The factor by which steps of the thresholds are larger than those of other weights. Without
    it, the thresholds would hardly move, and the classes in the middle would remain improbable.
    """

    def __init__(self, classes: int, **options: Any) -> None:
        super().__init__(**options)
        self.classes = classes

    def build(self, input_shape: Any) -> None:
        """Creates the weights: the lowest threshold and the distances between thresholds."""
        super().build(input_shape)
        lowest = -self.APART * (self.classes - 2) / 2 / self.RATE
        self.lowest = self.add_weight("lowest", (1,), initializer=_constant(lowest))
        step = math.log(math.expm1(self.APART)) / self.RATE  # Its softplus is `APART`.
        self.steps = self.add_weight("steps", (self.classes - 2,), initializer=_constant(step))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities: the differences between cumulative probabilities."""
        lowest = self.RATE * self.lowest
        above = lowest + tf.cumsum(tf.nn.softplus(self.RATE * self.steps))
        at_most = tf.sigmoid(tf.concat([lowest, above], 0) - inputs)
        zeros = tf.zeros_like(at_most[:, :1])
        cumulative = tf.concat([zeros, at_most, zeros + 1], 1)
        return cumulative[:, 1:] - cumulative[:, :-1]

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "classes": self.classes}


def _constant(value: float) -> tf_keras.initializers.Initializer:
    return tf_keras.initializers.Constant(value)
