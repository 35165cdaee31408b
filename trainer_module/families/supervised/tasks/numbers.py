"""What the tasks have in common whose label is a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

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
"""Metrics of every number."""


class NumberTask(BaseTask):
    """Base of the tasks whose label is a number."""

    label_kind: ClassVar[Task] = Task.REGRESSION
    shown_metrics: ClassVar[tuple[str, ...]] = ("rmse", "mae")
    otherwise: ClassVar[str] = "binary or multiclass"

    @property
    def needs(self) -> str:
        """Also of a label without text."""
        return "a finite number"

    def takes(self, labels: np.ndarray) -> np.ndarray:
        """Finite ones."""
        return np.isfinite(labels)

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """The number as it is."""
        import tensorflow as tf

        from trainer_module.features.raw_columns import dense_numbers

        if column.dtype == tf.string:
            raise DataError(
                f"label {label!r} holds text, but task: {self.kind} predicts a number; use task: "
                "binary or multiclass."
            )
        return dense_numbers(column)

    def has_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Finite ones."""
        import tensorflow as tf

        return tf.math.is_finite(labels)

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """The number."""
        return (self.kind,)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """A dense layer, brought to the label's scale."""
        import tf_keras

        dense = tf_keras.layers.Dense(problem.output_units)
        return tf_keras.Sequential([dense, self.make_activation(problem)], name="output")

    def whole_loss(
        self, loss: tf_keras.losses.Loss, problem: LabelStatistics, degree: int = 1
    ) -> tf_keras.losses.Loss:
        """Shown in units of the label, and learnt in those of its standard deviation."""
        from trainer_module.families.supervised.losses import ShownLoss

        return ShownLoss(loss, problem.label_deviation**degree)

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """The mean absolute error, and the root of the squared one."""
        import tf_keras

        return [
            tf_keras.metrics.MeanAbsoluteError(name="mae"),
            tf_keras.metrics.RootMeanSquaredError(name="rmse"),
        ]

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """`value` [batch]."""
        import tensorflow as tf

        return {"value": tf.reshape(output, [-1])}
