"""The tasks whose label is a number: `regression` and `count`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from trainer_module.errors import DataError
from trainer_module.settings.tasks import (
    NUMBER_METRICS,
    BaseTask,
    Metric,
    Task,
)

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.settings.tasks import LabelStatistics


def _error_quantile(level: float) -> Metric:
    options = {"level": level}
    return Metric("AbsoluteErrorQuantile", False, NUMBER_METRICS, options, has_unit=True)


ERRORS = {
    "mse": Metric("MeanSquaredError", higher_is_better=False, has_unit=True),
    "mae": Metric("MeanAbsoluteError", higher_is_better=False, has_unit=True),
    "rmse": Metric("RootMeanSquaredError", higher_is_better=False, has_unit=True),
    "r2": Metric("CoefficientOfDetermination", module=NUMBER_METRICS),
    "smape": Metric("SymmetricPercentageError", False, NUMBER_METRICS, has_unit=True),
    "median_absolute_error": _error_quantile(0.5),
    "p90_absolute_error": _error_quantile(0.9),
    "p99_absolute_error": _error_quantile(0.99),
}
"""The metrics of all numeric tasks by name."""


class NumberTask(BaseTask):
    """The base class of tasks whose label is a number."""

    label_kind: ClassVar[Task] = Task.REGRESSION
    shown_metrics: ClassVar[tuple[str, ...]] = ("rmse", "mae")
    alternatives: ClassVar[str] = "binary or multiclass"

    @property
    def needs(self) -> str:
        """A description of valid labels for messages."""
        return "a finite number"

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """Returns whether each label is finite."""
        return np.isfinite(labels)

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the label as a dense number."""
        import tensorflow as tf

        from trainer_module.features.raw_columns import dense_numbers

        if column.dtype == tf.string:
            raise DataError(
                f"label {label!r} holds text, but task: {self.kind} predicts a number; use task: "
                "binary or task: multiclass."
            )
        return dense_numbers(column)

    def has_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns whether each label is finite."""
        import tensorflow as tf

        return tf.math.is_finite(labels)

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the name of the only output: the number."""
        return (self.kind,)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a dense layer, followed by the layer of `make_activation`."""
        import tf_keras

        dense = tf_keras.layers.Dense(problem.output_units)
        return tf_keras.Sequential(
            [dense, self.make_activation(problem)], name=problem.layer_name("output")
        )

    def whole_loss(
        self, loss: tf_keras.losses.Loss, problem: LabelStatistics, degree: int = 1
    ) -> tf_keras.losses.Loss:
        """Returns a loss whose value is in the label's unit.

        Its gradients are those of labels that are divided by their standard deviation.
        """
        from trainer_module.families.supervised.losses import ShownLoss

        return ShownLoss(loss, problem.label_deviation**degree)

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns the mean absolute error and the root mean squared error that training shows."""
        import tf_keras

        return [
            tf_keras.metrics.MeanAbsoluteError(name="mae"),
            tf_keras.metrics.RootMeanSquaredError(name="rmse"),
        ]

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """Returns the prediction as `value`, [batch]."""
        import tensorflow as tf

        return {"value": tf.reshape(output, [-1])}


def _check_quantiles(levels: list[float]) -> list[float]:
    ascend = all(low < high for low, high in pairwise([0.0, *levels, 1.0]))
    if levels and (len(levels) < 2 or not ascend):
        raise ValueError(
            "give two or more numbers between 0 and 1 in ascending order, such as "
            "[0.05, 0.95] for an interval that contains 90 percent of the labels"
        )
    return levels


AUTO_TARGET: Literal["auto"] = "auto"


class RegressionTask(NumberTask):
    """The task of predicting a real number."""

    kind: Literal["regression"]
    # The default is absent from cache keys, as it is in those of earlier versions.
    target: Literal["auto", "plain", "log"] = Field(
        AUTO_TARGET, exclude_if=lambda value: value == AUTO_TARGET
    )
    """The target of training: the label (`plain`), or its logarithm (`log`), for which all labels
    must be above 0. Predictions and metrics are in the label's unit. `auto`: `log` where it is
    clearly better on examples that a model has not seen, otherwise `plain`.
    """
    quantiles: Annotated[list[float], AfterValidator(_check_quantiles)] = []
    """The levels of quantiles that the model predicts in addition to the number, such as `[0.05,
    0.95]`. The first and the last quantile are the ends of a prediction interval. Default: no
    quantiles.
    """

    @property
    def has_options(self) -> bool:
        """Whether the task has options other than `target`, which every model supports."""
        return len(self.model_dump(exclude={"target"}, exclude_defaults=True)) > 1

    def without_model_keys(self) -> BaseTask:
        """Returns the task without its quantiles and its target."""
        return self.model_copy(update={"quantiles": [], "target": AUTO_TARGET})

    @property
    def takes_own_loss(self) -> bool:
        """Whether `train.loss` can be the user's own loss: not with quantiles or logarithms."""
        return not self.quantiles and self.target != "log"

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics of the number, and of the quantiles if there are quantiles."""
        number_metrics = {
            **ERRORS,
            "mape": Metric("MeanAbsolutePercentageError", False, has_unit=True),
            "squared_correlation": Metric("SquaredPearsonCorrelation"),
        }
        if not self.quantiles:
            return number_metrics
        return number_metrics | {
            "coverage": Metric("Coverage", module=NUMBER_METRICS, is_compared=False),
            "interval_width": _quantile_metric("IntervalWidth"),
            "pinball_loss": _quantile_metric("PinballLoss", levels=self.quantiles),
        }

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the main default metrics; the mean squared error decides."""
        return ("mse", "mae", *(("coverage", "interval_width") if self.quantiles else ()))

    def reported_metrics(self) -> tuple[str, ...]:
        """Returns two forms of the mean squared error, which show its size."""
        return ("rmse", "r2")

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of the units: the number, and then the quantiles."""
        return (self.kind, *(f"quantile {level:g}" for level in self.quantiles))

    @property
    def output_description(self) -> str:
        """A description of the output for messages: the number and the quantiles."""
        levels = "".join(f", the quantile {level:g}" for level in self.quantiles)
        return f"the number{levels}"

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a layer that scales the outputs of a new model, about -1 to 1, to the label.

        Without this layer, a model would need thousands of steps to reach labels in the thousands.
        If the model learns logarithms, the layer also returns from them to the label's unit.
        """
        import tensorflow as tf
        import tf_keras

        from trainer_module.families.supervised.tasks import layers

        scale = (
            layers.make_number_and_quantiles(problem, self.quantiles)
            if self.quantiles
            else tf_keras.layers.Rescaling(
                problem.label_deviation, problem.label_mean, dtype=tf.float32
            )
        )
        if problem.log_range is None:
            return scale
        return tf_keras.Sequential([scale, layers.FromLogarithm(*problem.log_range)])

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Returns the mean squared error, plus the pinball loss if there are quantiles."""
        import tf_keras

        return self.whole_loss(tf_keras.losses.MeanSquaredError(), problem, degree=2)

    def loss_unit(self, problem: LabelStatistics) -> float:
        """Returns the label's standard deviation if there are quantiles, otherwise 1."""
        return problem.label_deviation if self.quantiles else 1.0

    def whole_loss(
        self, loss: tf_keras.losses.Loss, problem: LabelStatistics, degree: int = 1
    ) -> tf_keras.losses.Loss:
        """Returns the loss of the number, plus the pinball loss if there are quantiles.

        If the model learns logarithms, the loss compares logarithms.
        """
        from trainer_module.families.supervised.tasks.layers import (
            LogarithmLoss,
            NumberAndPinballLoss,
        )

        whole = (
            NumberAndPinballLoss(loss, self.quantiles, self.loss_unit(problem))
            if self.quantiles
            else super().whole_loss(loss, problem, degree)
        )
        return whole if problem.log_range is None else LogarithmLoss(whole, problem.log_range[0])

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns the mean absolute error and the root mean squared error of the number."""
        if not self.quantiles:
            return super().make_metrics()
        from trainer_module.families.supervised.tasks import layers

        return [
            layers.NumberMeanAbsoluteError(name="mae"),
            layers.NumberRootMeanSquaredError(name="rmse"),
        ]

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the number as `predictions`, and if there are quantiles, the `quantiles`."""
        if not self.quantiles:
            return super().measured(output)
        return {"predictions": output[:, :1], "quantiles": output[:, 1:]}

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """Returns the number as `value`, [batch], and if there are quantiles, `quantiles`, [batch,
        levels].
        """
        if not self.quantiles:
            return super().served(output, problem)
        return {"value": output[:, 0], "quantiles": output[:, 1:]}


def _quantile_metric(class_name: str, **options: object) -> Metric:
    return Metric(class_name, False, NUMBER_METRICS, options, is_compared=False, has_unit=True)


def bias_factor(label: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None) -> float:
    """Returns the `BiasFactor` of predictions, or 1 if no example is unseen.

    Args:
      label: the labels, [examples].
      predicted: the predictions of unseen examples, [examples]; NaN for seen ones.
      weight: the weights of the examples, [examples]; None if all count alike.
    """
    from trainer_module.families.supervised.tasks.layers import BiasFactor

    rows = ~np.isnan(predicted)
    if not rows.any():
        return 1.0
    scale = label[rows].max()  # The squares of large labels would be infinite in float32.
    metric, columns = BiasFactor(), np.stack([label[rows], predicted[rows]], 1) / scale
    metric.update_state(columns[:, :1], columns[:, 1:], None if weight is None else weight[rows])
    return float(metric.result())


class CountTask(NumberTask):
    """The task of predicting a count; the model predicts its expected value."""

    kind: Literal["count"]
    alternatives: ClassVar[str] = "regression"
    needs_activation: ClassVar[bool] = True

    @property
    def usual_objective(self) -> str:
        """The default objective of a hyperparameter search: the loss, which is the Poisson deviance
        up to a constant and a factor.
        """
        return self.monitor

    @property
    def needs(self) -> str:
        """A description of valid labels for messages."""
        return "a whole number that is not negative"

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """Returns whether each label is a whole number of at least 0."""
        return super().valid_labels(labels) & (labels >= 0) & (labels == np.floor(labels))

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the Poisson deviance and the metrics of all numeric tasks."""
        deviance = Metric("PoissonDeviance", False, NUMBER_METRICS, has_unit=True)
        return {"poisson_deviance": deviance, **ERRORS}

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the main default metrics; the Poisson deviance decides."""
        return ("poisson_deviance", "mae")

    @property
    def output_description(self) -> str:
        """A description of the output for messages: the expected count."""
        return "the expected count, which is never negative"

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a bounded exponential; a new model then predicts about the label's mean."""
        import tensorflow as tf
        import tf_keras

        from trainer_module.families.supervised.losses import bounded_exponential

        return tf_keras.Sequential(
            [
                tf_keras.layers.Activation(bounded_exponential, dtype=tf.float32),
                tf_keras.layers.Rescaling(problem.label_mean or 1.0, dtype=tf.float32),
            ]
        )

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Returns the negative log-likelihood of a Poisson distribution."""
        import tf_keras

        return self.whole_loss(tf_keras.losses.Poisson(), problem)
