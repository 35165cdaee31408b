"""Regression: a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from trainer_module.errors import DataError
from trainer_module.tasks.base import OWN_METRICS, BaseTask, Metric, Task

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.problem import Problem


class RegressionTask(BaseTask):
    """A number."""

    kind: Literal["regression"]
    family: ClassVar[Task] = Task.REGRESSION

    def metrics(self) -> Mapping[str, Metric]:
        """Errors, and what of the label's variance is explained."""
        return {
            "mse": Metric("MeanSquaredError", higher_is_better=False),
            "mae": Metric("MeanAbsoluteError", higher_is_better=False),
            "mape": Metric("MeanAbsolutePercentageError", higher_is_better=False),
            "rmse": Metric("RootMeanSquaredError", higher_is_better=False),
            "r2": Metric("CoefficientOfDetermination", module=OWN_METRICS),
            "squared_correlation": Metric("SquaredPearsonCorrelation"),
        }

    def usual_metrics(self) -> tuple[str, ...]:
        """The squared error, which training makes small, decides."""
        return ("mse", "mae")

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

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """The number."""
        return (self.kind,)

    def make_activation(self, problem: Problem) -> tf_keras.layers.Layer:
        """From the scale of a fresh model, about -1 to 1, to that of the label.

        Otherwise a label in the thousands would take thousands of steps to come near.
        """
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Rescaling(
            problem.label_deviation, problem.label_mean, dtype=tf.float32
        )

    def make_output_layer(self, problem: Problem) -> tf_keras.layers.Layer:
        """A dense layer, brought to the label's scale."""
        import tf_keras

        dense = tf_keras.layers.Dense(problem.output_units)
        return tf_keras.Sequential([dense, self.make_activation(problem)], name="output")

    def make_loss(self, problem: Problem) -> tf_keras.losses.Loss:
        """The mean squared error."""
        import tf_keras

        return tf_keras.losses.MeanSquaredError()

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """The mean absolute error, and the root of the squared one."""
        import tf_keras

        return [
            tf_keras.metrics.MeanAbsoluteError(name="mae"),
            tf_keras.metrics.RootMeanSquaredError(name="rmse"),
        ]

    def served(self, output: tf.Tensor, problem: Problem) -> dict[str, tf.Tensor]:
        """`value` [batch]."""
        import tensorflow as tf

        return {"value": tf.reshape(output, [-1])}
