"""Count: how often something happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from trainer_module.families.supervised.tasks.numbers import ERRORS, NumberTask
from trainer_module.settings.tasks import NUMBER_METRICS, Metric

if TYPE_CHECKING:
    import tf_keras

    from trainer_module.settings.tasks import LabelStatistics


class CountTask(NumberTask):
    """How often something happens: the expected number, which is never negative."""

    kind: Literal["count"]
    otherwise: ClassVar[str] = "regression"
    needs_activation: ClassVar[bool] = True

    @property
    def usual_objective(self) -> str:
        """The deviance, but for a constant."""
        return self.monitor

    @property
    def needs(self) -> str:
        """What can be counted."""
        return "a whole number that is not negative"

    def takes(self, labels: np.ndarray) -> np.ndarray:
        """Whole ones from 0 on."""
        return super().takes(labels) & (labels >= 0) & (labels == np.floor(labels))

    def metrics(self) -> Mapping[str, Metric]:
        """The deviance of a Poisson distribution, and errors."""
        deviance = Metric("PoissonDeviance", False, NUMBER_METRICS, has_unit=True)
        return {"poisson_deviance": deviance, **ERRORS}

    def usual_metrics(self) -> tuple[str, ...]:
        """The deviance, which training makes small, decides."""
        return ("poisson_deviance", "mae")

    @property
    def gives(self) -> str:
        """A number above 0."""
        return "the expected count, which is never negative"

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """The exponential, finite for every row; a fresh model begins near the label's mean."""
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
        """The negative logarithm of a Poisson distribution's likelihood."""
        import tf_keras

        return self.whole_loss(tf_keras.losses.Poisson(), problem)
