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

    Two models that are measured with the same seed use the same resamples (the same episodes or
    images), so draw `i` of one model is compared with draw `i` of the other, which cancels their
    common variation. The percentile interval is from Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993.

    Raises:
      TrainingError: the resamples are not a list of numbers, or there are none.
    """

    value: float
    resamples: np.ndarray
    """The values of the resamples, [draws] float64; centred on the value if resampling is biased.
    """

    def __post_init__(self) -> None:
        """Converts the resamples from any sequence of numbers."""
        try:
            found = np.asarray(self.resamples, np.float64)
        except (TypeError, ValueError) as error:
            raise TrainingError(f"resamples of a metric are numbers: {error}.") from None
        if found.ndim != 1 or not len(found):
            raise TrainingError(
                f"resamples of a metric have the shape {list(found.shape)}; right is [draws], at"
                " least one."
            )
        object.__setattr__(self, "resamples", found)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the lower and the upper end of the metric's confidence interval."""
        return _percentiles(self.resamples, confidence)

    def difference(self, other: Estimate, confidence: float) -> tuple[float, float]:
        """Returns the interval of the difference to another metric, paired draw by draw.

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
    """Sentences, each of which prevents the model from being blessed, regardless of its metrics."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that are stored with the evaluation, such as the worst episodes."""


def _percentiles(values: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
