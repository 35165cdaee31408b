"""The differences between slices and the whole eval split, and the part that chance explains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from pipeline.records.summary import MetricSummary
from pipeline.report.text import is_number

COUNT = "example_count"
"""The name of TFMA's metric for the number of rows in a slice."""
MIN_ROWS = 30
"""The smallest slice that is tested: the formula needs intervals of nearly normal shape."""

Ends = tuple[float, float]


@dataclass(frozen=True)
class SliceDifference:
    """The difference between a slice and the whole eval split in one metric."""

    name: str
    rows: int
    value: float
    interval: Ends | None
    difference: float
    """The value of the slice minus the value of the whole."""
    margin: float | None
    """The largest difference that chance explains, or None if the slice was not tested."""

    @property
    def is_beyond_chance(self) -> bool:
        """Whether the difference is larger than chance explains."""
        return self.margin is not None and abs(self.difference) > self.margin

    @property
    def strength(self) -> float:
        """The order of slices: the difference divided by its margin; 0 if it was not tested."""
        return abs(self.difference) / self.margin if self.margin else 0.0


def slice_differences(
    metric: str,
    whole: MetricSummary,
    slices: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, Mapping[str, Ends]],
    total: int | None,
    confidence: float,
) -> list[SliceDifference]:
    """Returns the differences in one metric, those that chance explains least first.

    Half of an interval at the level `confidence` is z standard errors. For a metric that is a mean
    over rows, a slice with the share w of all rows and the whole have the covariance w SE_slice^2,
    so that the standard error of their difference is

      SE^2 = SE_slice^2 (1 - 2 w) + SE_whole^2,

    and the test of this difference is the test of the slice against all other rows. For AUC and
    other metrics, the formula is an approximation. SE^2 is at least (1 - w)^2 SE_slice^2, its value
    if the other rows had no error. Among m tested slices, Bonferroni's correction keeps the
    probability of a single false alarm at 1 - confidence: chance explains differences up to
    q SE, where q is the quantile of the normal distribution at 1 - (1 - confidence) / (2 m).

    Args:
      whole: the metric on the whole eval split.
      slices: the metrics and COUNT by slice.
      intervals: the confidence intervals by slice and metric.
      total: the number of rows of the eval split, or None if unknown; then w counts as 0.
      confidence: the level of the intervals.

    Raises:
      StatisticsError: the confidence is not between 0 and 1.
    """
    found = {
        name: (metrics[metric], int(metrics.get(COUNT, 0) or 0), intervals.get(name, {}))
        for name, metrics in slices.items()
        if is_number(metrics.get(metric)) and is_number(whole.value)
    }
    errors = {
        name: error
        for name, (_, rows, of_slice) in found.items()
        if rows >= MIN_ROWS
        if (error := _standard_error(of_slice.get(metric), confidence)) is not None
    }
    error_of_whole = _standard_error(whole.interval, confidence)
    alpha = (1 - confidence) / (2 * max(1, len(errors)))
    quantile = NormalDist().inv_cdf(1 - alpha)
    differences = []
    for name, (value, rows, of_slice) in found.items():
        margin = None
        if name in errors and error_of_whole is not None:
            share = min(1.0, rows / total) if total else 0.0
            margin = quantile * _error_of_difference(errors[name], error_of_whole, share)
        ends = of_slice.get(metric)
        differences.append(
            SliceDifference(name, rows, value, ends, value - whole.value, margin or None)
        )
    return sorted(differences, key=lambda one: (-one.strength, -abs(one.difference)))


def _standard_error(ends: Ends | None, confidence: float) -> float | None:
    if ends is None or not all(map(is_number, ends)):
        return None
    return (ends[1] - ends[0]) / 2 / NormalDist().inv_cdf((1 + confidence) / 2)


def _error_of_difference(of_slice: float, of_whole: float, share: float) -> float:
    variance = of_slice**2 * (1 - 2 * share) + of_whole**2
    return math.sqrt(max(variance, ((1 - share) * of_slice) ** 2))
