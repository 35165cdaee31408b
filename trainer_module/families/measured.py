"""What a family's `measure` gives: the values of metrics, and how far chance moves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer_module.errors import TrainingError


@dataclass(frozen=True)
class Estimate:
    """A metric's value, and the values that it takes where the same was drawn again by chance.

    Two models that are measured with the same seed resample alike (the same episodes, the same
    images), so draw `i` of one is compared with draw `i` of the other: what moves both drops out.
    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, has the percentile interval.

    Raises:
      TrainingError: the resamples are no list of numbers, or there are none.
    """

    value: float
    resamples: np.ndarray
    """[draws] float64. A family centres them on the value where resampling shifts the metric."""

    def __post_init__(self) -> None:
        """Takes any sequence of numbers."""
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
        """Returns the lower and the upper end between which the metric lies with this
        confidence.
        """
        return _percentiles(self.resamples, confidence)

    def difference(self, other: Estimate, confidence: float) -> tuple[float, float]:
        """Returns the interval of this metric less the other's, paired draw by draw.

        Raises:
          ValueError: the two have another number of draws.
        """
        if self.resamples.shape != other.resamples.shape:
            raise ValueError(
                f"{len(self.resamples)} resamples cannot be paired with {len(other.resamples)}"
            )
        return _percentiles(self.resamples - other.resamples, confidence)


@dataclass(frozen=True)
class Measured:
    """All that a family found in a model."""

    metrics: Mapping[str, float | Estimate]
    """By name; those of `LearningTask.metrics`."""
    notes: tuple[str, ...] = ()
    """Sentences that the summary of the run shows."""
    failures: tuple[str, ...] = ()
    """Sentences, each of which keeps the model from being blessed, whatever the metrics say."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that are kept with the evaluation, such as the worst episodes."""


def _percentiles(values: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
