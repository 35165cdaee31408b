"""Quantiles of the absolute error: the median, and what nine of ten predictions keep within.

Errors are counted in cells whose bounds grow by a constant factor, so that counts of batches, files
and processes add up, and every quantile is right to within `ACCURACY` of its value: Masson, Rim and
Lee, 2019, "DDSketch", doi:10.14778/3352063.3352135.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2

from components.evaluator.own_metrics.combining import KeyedCombiner

ACCURACY = 1e-3
"""By what share of itself a quantile may be off."""
_GROWTH = math.log1p(ACCURACY) - math.log1p(-ACCURACY)
"""The logarithm of how much larger a cell's upper bound is than its lower one."""
_SMALLEST = math.floor(math.log(5e-324) / _GROWTH) - 1
_LARGEST = math.ceil(math.log(sys.float_info.max) / _GROWTH) + 1
CELLS = _LARGEST - _SMALLEST + 2
"""From errors of 0, which have the first one, to those without end, which have the last."""

_ROUNDING = 1e-12
"""By how much sums of the same weights may differ, relative to them."""


def cells_of(errors: np.ndarray) -> np.ndarray:
    """The cells of absolute errors, [rows] int64; none may be NaN."""
    usual = (errors > 0) & np.isfinite(errors)
    cells = np.ceil(np.log(np.where(usual, errors, 1.0)) / _GROWTH).astype(np.int64) - _SMALLEST
    return np.where(usual, cells, np.where(errors == 0, 0, CELLS - 1))


def value_of(cell: int) -> float:
    """The error that is off by the same share from both bounds of a cell."""
    if cell == 0:
        return 0.0
    if cell == CELLS - 1:
        return math.inf
    return (1 - ACCURACY) * math.exp(min((cell + _SMALLEST) * _GROWTH, 709.0))


def quantile(counts: Mapping[int, float], level: float) -> float:
    """The smallest error that at least such a share of the weight does not exceed.

    Args:
      counts: weights by cell.
      level: the share, from 0 to 1.

    Returns:
      NaN of no weight.
    """
    ordered = sorted(cell for cell, weight in counts.items() if weight)
    if not ordered:
        return math.nan
    reached = np.cumsum([counts[cell] for cell in ordered])
    place = int(np.searchsorted(reached, level * reached[-1] * (1 - _ROUNDING)))
    return value_of(ordered[place])


class AbsoluteErrorQuantile(metric_types.Metric):
    """A quantile of the distances of predictions from labels; a NaN counts for nothing."""

    def __init__(self, name: str, level: float) -> None:
        computations = metric_util.merge_per_key_computations(_error_quantile)
        super().__init__(computations, name=name, level=level)


def _error_quantile(
    name: str,
    level: float,
    eval_config: config_pb2.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    parts = {"model_name": model_name, "output_name": output_name}
    counts = metric_types.MetricKey("_errors", **parts, example_weighted=example_weighted)
    key = metric_types.MetricKey(name, **parts, example_weighted=example_weighted)

    def result(metrics: Mapping[metric_types.MetricKey, Any]) -> dict[Any, float]:
        return {key: quantile(metrics[counts], level)}

    combiner = ErrorCombiner(counts, eval_config)
    return [
        metric_types.MetricComputation(keys=[counts], preprocessors=None, combiner=combiner),
        metric_types.DerivedMetricComputation(keys=[key], result=result),
    ]


class ErrorCombiner(KeyedCombiner):
    """Counts errors by their cells, example by example."""

    def create_accumulator(self) -> dict[int, float]:
        """Of no examples."""
        return {}

    def add_input(
        self, accumulator: dict[int, float], element: metric_types.StandardMetricInputs
    ) -> dict[int, float]:
        """Adds an example."""
        for label, predicted, weight in self.rows(element):
            error = abs(float(label.item()) - float(predicted.item()))
            if not math.isnan(error):
                (cell,) = cells_of(np.array([error])).tolist()
                accumulator[cell] = accumulator.get(cell, 0.0) + float(weight.item())
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[dict[int, float]]) -> dict[int, float]:
        """Their sum."""
        total: dict[int, float] = {}
        for accumulator in accumulators:
            for cell, weight in accumulator.items():
                total[cell] = total.get(cell, 0.0) + weight
        return total
