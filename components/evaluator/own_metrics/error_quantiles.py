"""Quantiles of the absolute error: the median, and what nine of ten predictions keep within.

Errors are counted in cells whose bounds grow by a constant factor, so that counts of batches, files
and processes add up, and every quantile is right to within `ACCURACY` of its value: Masson, Rim and
Lee, 2019, "DDSketch", doi:10.14778/3352063.3352135.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2

from components.evaluator.batched.rows import ModelRows
from components.evaluator.batched.statistics import CellStatistic
from components.evaluator.own_metrics.own import (
    Computations,
    OwnMetric,
    added_up,
    options_of,
    with_derived,
)

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


def quantile(cells: np.ndarray, weights: np.ndarray, level: float) -> float:
    """The smallest error that at least such a share of the weight does not exceed.

    Args:
      cells: [cells] in ascending order.
      weights: [cells], above 0.
      level: the share, from 0 to 1.

    Returns:
      NaN of no weight.
    """
    if not len(cells):
        return math.nan
    reached = weights.cumsum()
    place = int(np.searchsorted(reached, level * reached[-1] * (1 - _ROUNDING)))
    return value_of(int(cells[place]))


class ErrorCells(CellStatistic):
    """Errors by the cells of their sketch."""

    width = 1
    cells = CELLS

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """The cells of errors that are numbers and have a weight."""
        errors = np.abs(batch.labels.astype(np.float64) - batch.numbers.astype(np.float64))
        known, weights = ~np.isnan(errors), self.weights(batch)
        cells = cells_of(np.where(known, errors, 0.0))
        return np.where(known & (weights != 0), cells, -1), weights[:, np.newaxis]

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Cells and their weights."""
        cells, sums = self.together(parts)
        return {self.combiner.key: (cells, sums[:, 0])}


class AbsoluteErrorQuantile(OwnMetric):
    """A quantile of the distances of predictions from labels; a NaN counts for nothing."""

    def __init__(self, name: str, level: float) -> None:
        super().__init__(name)
        self._level = level

    def of_key(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """From the counts, which all quantiles share."""
        counts = metric_types.MetricKey("_errors", **options_of(key))
        computations = added_up(counts, eval_config, ErrorCells)
        return with_derived(
            computations, key, lambda found: quantile(found[0], found[1], self._level)
        )
