"""Metrics of numbers and ranks: means of a value per example, R², and error quantiles.

Errors are counted in cells whose bounds grow by a constant factor, so that counts of batches, files
and processes add up, and every quantile is right to within `ACCURACY` of its value: Masson, Rim and
Lee, 2019, "DDSketch", doi:10.14778/3352063.3352135.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2

from components.evaluator.batched.slices import ModelRows, SliceMembership
from components.evaluator.batched.statistics import (
    CellStatistic,
    MeanStatistic,
    SumStatistic,
    Values,
    pad,
    ratio,
    weigh,
)
from components.evaluator.own_metrics import (
    Computations,
    OwnMetric,
    add_derived,
    key_options,
    statistic_computations,
)

_EQUAL = 1e-28
"""The spread, relative to the mean's square, up to which labels count as equal except for
rounding."""


class RowMeans(MeanStatistic):
    """The mean of a metric's value per row."""

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the metric's value of each row, times its weight, and the weight."""
        return weigh(self.combiner.metric.row_values(batch), self.weights(batch))

    def output(self, parts: np.ndarray) -> dict[Any, float]:
        """Returns the mean; NaN if there is no weight."""
        return {self.combiner.key: self.exact(parts)[0]}


class MeanMetric(OwnMetric):
    """A weighted mean over the examples."""

    @abstractmethod
    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns the value of each row, [rows]; a classifier's outputs are probabilities."""

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computation of the mean from the sums of values and weights."""
        return statistic_computations(key, eval_config, RowMeans, self)


class Coverage(MeanMetric):
    """The share of the labels between the first and the last quantile."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns 1 for labels within, else 0; NaN if the model has no quantiles."""
        if not rows.quantiles.shape[1]:
            return np.full(len(rows.labels), np.nan)
        truth = rows.labels.astype(np.float64)
        is_within = (rows.quantiles[:, 0] <= truth) & (truth <= rows.quantiles[:, -1])
        return is_within.astype(np.float64)


class IntervalWidth(MeanMetric):
    """The mean distance between the first and the last quantile."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns each row's distance; NaN if the model has no quantiles."""
        if not rows.quantiles.shape[1]:
            return np.full(len(rows.labels), np.nan)
        return rows.quantiles[:, -1] - rows.quantiles[:, 0]


class PinballLoss(MeanMetric):
    """The quantile loss (pinball loss), averaged over the quantiles."""

    def __init__(self, name: str, levels: Sequence[float]) -> None:
        super().__init__(name)
        self._levels = np.array(levels)

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns each row's loss; NaN if the model has another number of quantiles."""
        if rows.quantiles.shape[1] != len(self._levels):
            return np.full(len(rows.labels), np.nan)
        error = rows.labels.astype(np.float64)[:, np.newaxis] - rows.quantiles
        return np.maximum(self._levels * error, (self._levels - 1) * error).mean(1)


class SymmetricPercentageError(MeanMetric):
    """The error in percent of the mean of label and prediction: from 0 to 200."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns each row's error; 0 where label and prediction are 0."""
        truth = rows.labels.astype(np.float64)
        said = rows.predictions.astype(np.float64)[:, 0]
        size = np.abs(truth) + np.abs(said)
        return 200 * np.divide(np.abs(truth - said), size, out=np.zeros(len(size)), where=size != 0)


class PoissonDeviance(MeanMetric):
    """The deviance of a Poisson distribution: twice the difference in log-likelihood to a perfect
    prediction.
    """

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns each row's deviance; infinite for an infinite or negative prediction, or 0 for a
        count above 0.
        """
        truth = rows.labels.astype(np.float64)
        mean = rows.predictions.astype(np.float64)[:, 0]
        usual = (mean > 0) & ~np.isinf(mean)
        safe = np.where(usual, mean, 1.0)
        surprise = truth * np.log(np.where(truth > 0, truth, 1.0) / safe)
        surprise = np.where(truth == 0, 0.0, surprise)
        odd = np.where((truth == 0) & (mean == 0), 0.0, np.inf)
        return np.where(np.isnan(mean), np.nan, np.where(usual, 2 * (surprise - truth + mean), odd))


class RankError(MeanMetric):
    """The distance in ranks between the label and the most probable of some ordered classes."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns each row's distance in ranks."""
        return np.abs(rows.labels.astype(np.float64) - rows.predictions.argmax(1))


class Determination(SumStatistic):
    """The spread of the labels, and the squared errors.

    The state of a part is its weight, the mean of the labels, their squared distances from the
    mean, and the squared errors. Sums of squared labels would lose precision for large labels.
    """

    width = 4
    is_metric = True

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the state of each row by itself."""
        truth, weights = batch.labels.astype(np.float64), self.weights(batch)
        errors = weights * (truth - batch.numbers.astype(np.float64)) ** 2
        return np.stack([weights, truth, np.zeros(len(truth)), errors], axis=1)

    def add(self, batch: ModelRows, members: SliceMembership) -> None:
        """Adds the spread of the batch, by part."""
        weights, truth, _, errors = self.values(batch).T
        weight, total = members.total(weights), members.total(weights * truth)
        mean = np.divide(total, weight, out=np.zeros(len(weight)), where=weight != 0)
        squares = weights[members.rows] * (truth[members.rows] - mean[members.slices]) ** 2
        squares = np.bincount(members.slices, squares, members.count)
        found = np.stack([weight, mean, squares, members.total(errors)], axis=1)
        self.totals = _both(pad(self.totals, members.count), found)

    def merge(self, other: Any, places: np.ndarray, count: int) -> None:
        """Adds the spreads of the other statistic."""
        self.totals = pad(self.totals, count).copy()
        kept = places >= 0
        also = pad(other.totals, len(places))[kept]
        self.totals[places[kept]] = _both(self.totals[places[kept]], also)

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns R² of each resample."""
        weight, mean, squares, errors = self.totals[parts].T
        # Distances from the overall mean, so that the squares of large labels lose no digits.
        all_rows = weight.sum()
        distance = mean - ((weight * mean).sum() / all_rows if all_rows else 0.0)
        moved = np.nan_to_num(ratio((counts @ (weight * distance)) ** 2, counts @ weight))
        spread = counts @ (squares + weight * distance**2) - moved
        # The mean of equal labels may differ from them in the last digit.
        spread = np.where(spread > _EQUAL * (counts @ (weight * mean**2)), spread, 0.0)
        return [1 - ratio(counts @ errors, spread)]

    def output(self, parts: np.ndarray) -> dict[Any, float]:
        """Returns R²; NaN if all labels are the same."""
        return {self.combiner.key: self.exact(parts)[0]}


def _both(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns the combined spread of two parts of the data, by Chan, Golub and LeVeque's formula
    (1979).
    """
    weight = one[:, 0] + other[:, 0]
    share = np.divide(other[:, 0], weight, out=np.zeros_like(weight), where=weight != 0)
    distance = other[:, 1] - one[:, 1]
    squares = one[:, 2] + other[:, 2] + distance**2 * one[:, 0] * share
    return np.stack([weight, one[:, 1] + distance * share, squares, one[:, 3] + other[:, 3]], 1)


class CoefficientOfDetermination(OwnMetric):
    """R²: 1 minus the squared errors divided by those of the labels' mean; below 0 if the mean is
    better.
    """

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computation of R² from the spread of the labels."""
        return statistic_computations(key, eval_config, Determination)


ACCURACY = 1e-3
"""The most that a quantile may be off, relative to its value."""
_GROWTH = math.log1p(ACCURACY) - math.log1p(-ACCURACY)
"""The logarithm of the ratio of a cell's upper bound to its lower one."""
_SMALLEST = math.floor(math.log(5e-324) / _GROWTH) - 1
_LARGEST = math.ceil(math.log(sys.float_info.max) / _GROWTH) + 1
CELLS = _LARGEST - _SMALLEST + 2
"""The number of cells; the first holds errors of 0, the last infinite ones."""

_ROUNDING = 1e-12
"""The most that sums of the same weights may differ, relative to them."""


def cells_of(errors: np.ndarray) -> np.ndarray:
    """Returns the cells of absolute errors, [rows] int64; none may be NaN."""
    usual = (errors > 0) & np.isfinite(errors)
    cells = np.ceil(np.log(np.where(usual, errors, 1.0)) / _GROWTH).astype(np.int64) - _SMALLEST
    return np.where(usual, cells, np.where(errors == 0, 0, CELLS - 1))


def value_of(cell: int) -> float:
    """Returns the error that differs by the same share from both bounds of a cell."""
    if cell == 0:
        return 0.0
    if cell == CELLS - 1:
        return math.inf
    return (1 - ACCURACY) * math.exp(min((cell + _SMALLEST) * _GROWTH, 709.0))


def quantile(cells: np.ndarray, weights: np.ndarray, level: float) -> float:
    """Returns the smallest error that at least a given share of the weight does not exceed.

    Args:
      cells: [cells] in ascending order.
      weights: [cells], above 0.
      level: the share, from 0 to 1.

    Returns:
      The error; NaN if there is no weight.
    """
    if not len(cells):
        return math.nan
    reached = weights.cumsum()
    place = int(np.searchsorted(reached, level * reached[-1] * (1 - _ROUNDING)))
    return value_of(int(cells[place]))


class ErrorCells(CellStatistic):
    """The weights of the errors, by the cells of the sketch."""

    width = 1
    cells = CELLS

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cells of errors that are numbers and have a weight; -1 for other errors."""
        errors = np.abs(batch.labels.astype(np.float64) - batch.numbers.astype(np.float64))
        known, weights = ~np.isnan(errors), self.weights(batch)
        cells = cells_of(np.where(known, errors, 0.0))
        return np.where(known & (weights != 0), cells, -1), weights[:, np.newaxis]

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the cells and their weights."""
        cells, sums = self.sum_cells(parts)
        return {self.combiner.key: (cells, sums[:, 0])}


class AbsoluteErrorQuantile(OwnMetric):
    """A quantile of the absolute errors, without those that are NaN."""

    def __init__(self, name: str, level: float) -> None:
        super().__init__(name)
        self._level = level

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the counts, which all quantiles share, and the quantile derived from them."""
        counts = metric_types.MetricKey("_errors", **key_options(key))
        computations = statistic_computations(counts, eval_config, ErrorCells)
        return add_derived(
            computations, key, lambda found: quantile(found[0], found[1], self._level)
        )
