"""Regression: a number, and on request quantiles of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

from trainer_module.families.supervised.tasks.numbers import ERRORS, NumberTask
from trainer_module.settings.tasks import NUMBER_METRICS, BaseTask, Metric

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.settings.tasks import LabelStatistics


def _check_quantiles(levels: list[float]) -> list[float]:
    ascend = all(low < high for low, high in pairwise([0.0, *levels, 1.0]))
    if levels and (len(levels) < 2 or not ascend):
        raise ValueError(
            "right are two or more numbers between 0 and 1 in ascending order, such as "
            "[0.05, 0.95], between which nine of ten labels lie"
        )
    return levels


class RegressionTask(NumberTask):
    """A number."""

    kind: Literal["regression"]
    quantiles: Annotated[list[float], AfterValidator(_check_quantiles)] = []
    """Quantiles of the label to predict beside it, such as `[0.05, 0.95]`: the interval between the
    first and the last."""

    def without_model_keys(self) -> BaseTask:
        """Without the quantiles."""
        return self.model_copy(update={"quantiles": []})

    @property
    def takes_own_loss(self) -> bool:
        """Not with quantiles beside the number."""
        return not self.quantiles

    def metrics(self) -> Mapping[str, Metric]:
        """Errors, what of the label's variance is explained, and how good the quantiles are."""
        of_number = {
            **ERRORS,
            "mape": Metric("MeanAbsolutePercentageError", False, has_unit=True),
            "squared_correlation": Metric("SquaredPearsonCorrelation"),
        }
        if not self.quantiles:
            return of_number
        return of_number | {
            "coverage": Metric("Coverage", module=NUMBER_METRICS, is_compared=False),
            "interval_width": _of_quantiles("IntervalWidth"),
            "pinball_loss": _of_quantiles("PinballLoss", levels=self.quantiles),
        }

    def usual_metrics(self) -> tuple[str, ...]:
        """The squared error, which training makes small, decides."""
        return ("mse", "mae", *(("coverage", "interval_width") if self.quantiles else ()))

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """The number, then the quantiles."""
        return (self.kind, *(f"quantile {level:g}" for level in self.quantiles))

    @property
    def gives(self) -> str:
        """A number, and the quantiles if there are any."""
        levels = "".join(f", the quantile {level:g}" for level in self.quantiles)
        return f"the number{levels}"

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From the scale of a fresh model, about -1 to 1, to that of the label.

        Otherwise a label in the thousands would take thousands of steps to come near.
        """
        if self.quantiles:
            from trainer_module.families.supervised.tasks import quantiles

            return quantiles.make_activation(problem, self.quantiles)
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Rescaling(
            problem.label_deviation, problem.label_mean, dtype=tf.float32
        )

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """The mean squared error, and with quantiles their pinball loss."""
        import tf_keras

        return self.whole_loss(tf_keras.losses.MeanSquaredError(), problem, degree=2)

    def loss_unit(self, problem: LabelStatistics) -> float:
        """With quantiles the label's standard deviation, so that all parts of the loss count."""
        return problem.label_deviation if self.quantiles else 1.0

    def whole_loss(
        self, loss: tf_keras.losses.Loss, problem: LabelStatistics, degree: int = 1
    ) -> tf_keras.losses.Loss:
        """With the pinball loss of the quantiles, if there are any."""
        if not self.quantiles:
            return super().whole_loss(loss, problem, degree)
        from trainer_module.families.supervised.tasks.quantiles import NumberAndPinballLoss

        return NumberAndPinballLoss(loss, self.quantiles, self.loss_unit(problem))

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """The number's mean absolute error, and the root of its squared one."""
        if not self.quantiles:
            return super().make_metrics()
        from trainer_module.families.supervised.tasks import quantiles

        return [
            quantiles.NumberMeanAbsoluteError(name="mae"),
            quantiles.NumberRootMeanSquaredError(name="rmse"),
        ]

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """The number as `predictions`, and the `quantiles`."""
        if not self.quantiles:
            return super().measured(output)
        return {"predictions": output[:, :1], "quantiles": output[:, 1:]}

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """`value` [batch], and `quantiles` [batch, levels] in ascending order, if there are any."""
        if not self.quantiles:
            return super().served(output, problem)
        return {"value": output[:, 0], "quantiles": output[:, 1:]}


def _of_quantiles(class_name: str, **options: object) -> Metric:
    return Metric(class_name, False, NUMBER_METRICS, options, is_compared=False, has_unit=True)
