"""The result of a family's `measure`: the values of metrics and their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer_module.errors import TrainingError


@dataclass(frozen=True)
class Estimate:
    """A metric's value with its bootstrap resamples.

    Models that are measured with the same seed have to use the same resamples (the same episodes or
    images). Draw `i` of one model is then compared with draw `i` of the other model, so that
    variation common to both models cancels. The interval is the percentile interval of Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993.

    Raises:
      TrainingError: the resamples are not a list of numbers, or the list is empty.
    """

    value: float
    resamples: np.ndarray
    """The values of the metric on the resamples, [draws] float64.

    If resampling is biased, the values have to be shifted, so that their mean is `value`.
    """

    def __post_init__(self) -> None:
        """Converts the resamples, which may be any sequence of numbers."""
        try:
            resamples = np.asarray(self.resamples, np.float64)
        except (TypeError, ValueError) as error:
            raise TrainingError(f"resamples of a metric must be numbers: {error}.") from None
        if resamples.ndim != 1 or not len(resamples):
            raise TrainingError(
                f"resamples of a metric have the shape {list(resamples.shape)}; expected: [draws],"
                " with at least one draw."
            )
        object.__setattr__(self, "resamples", resamples)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the lower and the upper end of the metric's confidence interval."""
        return _percentiles(self.resamples, confidence)

    def difference(self, other: Estimate, confidence: float) -> tuple[float, float]:
        """Returns the confidence interval of the difference between two models' values.

        Args:
          other: the metric of the other model, whose value is subtracted.
          confidence: the confidence of the interval.

        Raises:
          ValueError: the metrics have different numbers of draws.
        """
        if self.resamples.shape != other.resamples.shape:
            raise ValueError(
                f"{len(self.resamples)} resamples cannot be paired with {len(other.resamples)}"
            )
        return _percentiles(self.resamples - other.resamples, confidence)


@dataclass(frozen=True)
class Measured:
    """The complete result of measuring a model."""

    metrics: Mapping[str, float | Estimate]
    """The values by name, for the metrics of `LearningTask.metrics`."""
    notes: tuple[str, ...] = ()
    """Sentences for the summary of the run."""
    failures: tuple[str, ...] = ()
    """Reasons not to bless the model, whatever its metrics are; usually empty."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that are stored with the evaluation, such as the worst episodes."""


def _percentiles(values: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
