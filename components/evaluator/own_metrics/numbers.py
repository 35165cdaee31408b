"""Metrics of numbers and ranks: means of a value per example, R², and quantiles of the error.

For quantiles, errors are counted in cells. The bounds of cells grow by a constant factor, so the
relative error of a quantile is at most `ACCURACY` (Masson, Rim and Lee, 2019, "DDSketch",
doi:10.14778/3352063.3352135). The counts of batches, files and processes can be added.
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
"""The spread of labels, divided by their squared mean, up to which the spread is a rounding
error."""


class RowMeans(MeanStatistic):
    """The mean of a metric's value per row."""

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the weighted value and the weight of each row."""
        return weigh(self.combiner.metric.row_values(batch), self.weights(batch))

    def output(self, parts: np.ndarray) -> dict[Any, float]:
        """Returns the mean, or NaN if the sum of weights is 0."""
        return {self.combiner.key: self.exact(parts)[0]}


class MeanMetric(OwnMetric):
    """Base of the metrics that are a weighted mean over the examples."""

    @abstractmethod
    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns the value of each row, [rows]. The predictions of a classifier are
        probabilities.
        """

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computation of the mean from the sums of values and weights."""
        return statistic_computations(key, eval_config, RowMeans, self)


class Coverage(MeanMetric):
    """The share of the labels between the first and the last predicted quantile."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns 1 for labels between the quantiles and 0 otherwise, or NaN without quantiles."""
        if not rows.quantiles.shape[1]:
            return np.full(len(rows.labels), np.nan)
        labels = rows.labels.astype(np.float64)
        is_within = (rows.quantiles[:, 0] <= labels) & (labels <= rows.quantiles[:, -1])
        return is_within.astype(np.float64)


class IntervalWidth(MeanMetric):
    """The mean distance between the first and the last predicted quantile."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns the distance of each row, or NaN if the model predicts no quantiles."""
        if not rows.quantiles.shape[1]:
            return np.full(len(rows.labels), np.nan)
        return rows.quantiles[:, -1] - rows.quantiles[:, 0]


class PinballLoss(MeanMetric):
    """The quantile loss (pinball loss), averaged over the quantiles."""

    def __init__(self, name: str, levels: Sequence[float]) -> None:
        super().__init__(name)
        self._levels = np.array(levels)

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns the loss of each row, or NaN if the model predicts another number of
        quantiles.
        """
        if rows.quantiles.shape[1] != len(self._levels):
            return np.full(len(rows.labels), np.nan)
        error = rows.labels.astype(np.float64)[:, np.newaxis] - rows.quantiles
        return np.maximum(self._levels * error, (self._levels - 1) * error).mean(1)


class SymmetricPercentageError(MeanMetric):
    """The mean absolute error in percent of the mean of |label| and |prediction|, from 0 to 200."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns the error of each row, or 0 if the label and the prediction are 0."""
        labels = rows.labels.astype(np.float64)
        predictions = rows.predictions.astype(np.float64)[:, 0]
        sizes = np.abs(labels) + np.abs(predictions)
        return 200 * np.divide(
            np.abs(labels - predictions), sizes, out=np.zeros(len(sizes)), where=sizes != 0
        )


class PoissonDeviance(MeanMetric):
    """The Poisson deviance: twice the log-likelihood that the predictions lose to the labels."""

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns the deviance of each row.

        The deviance is infinite for a negative or infinite prediction, and for a prediction of 0 if
        the label is above 0.
        """
        labels = rows.labels.astype(np.float64)
        predicted = rows.predictions.astype(np.float64)[:, 0]
        is_regular = (predicted > 0) & ~np.isinf(predicted)
        divisors = np.where(is_regular, predicted, 1.0)
        terms = labels * np.log(np.where(labels > 0, labels, 1.0) / divisors)
        terms = np.where(labels == 0, 0.0, terms)
        irregular = np.where((labels == 0) & (predicted == 0), 0.0, np.inf)
        return np.where(
            np.isnan(predicted),
            np.nan,
            np.where(is_regular, 2 * (terms - labels + predicted), irregular),
        )


class RankError(MeanMetric):
    """The mean distance in ranks between the label and the most probable class (ordered
    classes).
    """

    def row_values(self, rows: ModelRows) -> np.ndarray:
        """Returns the distance of each row in ranks."""
        return np.abs(rows.labels.astype(np.float64) - rows.predictions.argmax(1))


class Determination(SumStatistic):
    """The sums for R².

    The state of a part is four numbers: the sum of weights, the mean of the labels, the sum of the
    labels' squared distances from the mean (the spread), and the sum of squared errors. Sums of
    squared labels would lose precision if labels are large.
    """

    width = 4
    is_metric = True

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the state of each row, as if it were a part."""
        labels, weights = batch.labels.astype(np.float64), self.weights(batch)
        errors = weights * (labels - batch.numbers.astype(np.float64)) ** 2
        return np.stack([weights, labels, np.zeros(len(labels)), errors], axis=1)

    def add(self, batch: ModelRows, members: SliceMembership) -> None:
        """Adds the states of the batch, by part."""
        weights, labels, _, errors = self.values(batch).T
        weight, total = members.total(weights), members.total(weights * labels)
        mean = np.divide(total, weight, out=np.zeros(len(weight)), where=weight != 0)
        squares = weights[members.rows] * (labels[members.rows] - mean[members.slices]) ** 2
        squares = np.bincount(members.slices, squares, members.count)
        states = np.stack([weight, mean, squares, members.total(errors)], axis=1)
        self.totals = _combine(pad(self.totals, members.count), states)

    def merge(self, other: Any, numbers: np.ndarray, count: int) -> None:
        """Adds the states of the other statistic."""
        self.totals = pad(self.totals, count).copy()
        is_kept = numbers >= 0
        added = pad(other.totals, len(numbers))[is_kept]
        self.totals[numbers[is_kept]] = _combine(self.totals[numbers[is_kept]], added)

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns R² in all resamples."""
        weight, mean, squares, errors = self.totals[parts].T
        # Distances from the overall mean are used: squares of large labels would lose digits.
        all_rows = weight.sum()
        distance = mean - ((weight * mean).sum() / all_rows if all_rows else 0.0)
        shift = np.nan_to_num(ratio((counts @ (weight * distance)) ** 2, counts @ weight))
        spread = counts @ (squares + weight * distance**2) - shift
        # The mean of equal labels may differ from the labels in the last digit.
        spread = np.where(spread > _EQUAL * (counts @ (weight * mean**2)), spread, 0.0)
        return [1 - ratio(counts @ errors, spread)]

    def output(self, parts: np.ndarray) -> dict[Any, float]:
        """Returns R², or NaN if all labels are equal."""
        return {self.combiner.key: self.exact(parts)[0]}


def _combine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the combined states of parts, by the formula of Chan, Golub and LeVeque (1979)."""
    weight = first[:, 0] + second[:, 0]
    share = np.divide(second[:, 0], weight, out=np.zeros_like(weight), where=weight != 0)
    distance = second[:, 1] - first[:, 1]
    squares = first[:, 2] + second[:, 2] + distance**2 * first[:, 0] * share
    return np.stack(
        [weight, first[:, 1] + distance * share, squares, first[:, 3] + second[:, 3]], 1
    )


class CoefficientOfDetermination(OwnMetric):
    """R²: 1 minus the sum of squared errors, divided by the spread of the labels.

    R² is negative if the model is worse than predicting the mean of the labels.
    """

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computation of R²."""
        return statistic_computations(key, eval_config, Determination)


ACCURACY = 1e-3
"""The largest relative error of a quantile."""
_GROWTH = math.log1p(ACCURACY) - math.log1p(-ACCURACY)
"""The logarithm of the ratio between the upper and the lower bound of a cell."""
_SMALLEST = math.floor(math.log(5e-324) / _GROWTH) - 1
_LARGEST = math.ceil(math.log(sys.float_info.max) / _GROWTH) + 1
CELLS = _LARGEST - _SMALLEST + 2
"""The number of cells. The first cell counts errors of 0, and the last cell infinite errors."""

_ROUNDING = 1e-12
"""The largest relative difference between two sums of the same weights in different orders."""


def error_cells(errors: np.ndarray) -> np.ndarray:
    """Returns the cell of each absolute error, [rows] int64. An error must not be NaN."""
    is_regular = (errors > 0) & np.isfinite(errors)
    cells = (
        np.ceil(np.log(np.where(is_regular, errors, 1.0)) / _GROWTH).astype(np.int64) - _SMALLEST
    )
    return np.where(is_regular, cells, np.where(errors == 0, 0, CELLS - 1))


def cell_value(cell: int) -> float:
    """Returns the error that stands for a cell: its relative distance to both bounds is equal."""
    if cell == 0:
        return 0.0
    if cell == CELLS - 1:
        return math.inf
    return (1 - ACCURACY) * math.exp(min((cell + _SMALLEST) * _GROWTH, 709.0))


def quantile(cells: np.ndarray, weights: np.ndarray, level: float) -> float:
    """Returns a quantile of errors that are counted in cells.

    Args:
      cells: [cells], the used cells in ascending order.
      weights: [cells], the weight in each cell, above 0.
      level: the level of the quantile, from 0 to 1.

    Returns:
      The quantile, or NaN if there are no cells.
    """
    if not len(cells):
        return math.nan
    cumulative = weights.cumsum()
    index = int(np.searchsorted(cumulative, level * cumulative[-1] * (1 - _ROUNDING)))
    return cell_value(int(cells[index]))


class ErrorCells(CellStatistic):
    """The sum of weights of each cell of errors."""

    width = 1
    cells = CELLS

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cell of each row's error, and the weights.

        The cell is -1 for a NaN and for a row of weight 0.
        """
        errors = np.abs(batch.labels.astype(np.float64) - batch.numbers.astype(np.float64))
        is_number, weights = ~np.isnan(errors), self.weights(batch)
        cells = error_cells(np.where(is_number, errors, 0.0))
        return np.where(is_number & (weights != 0), cells, -1), weights[:, np.newaxis]

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the cells and their weights."""
        cells, sums = self.sum_cells(parts)
        return {self.combiner.key: (cells, sums[:, 0])}


class AbsoluteErrorQuantile(OwnMetric):
    """A quantile of the absolute errors, without NaN."""

    def __init__(self, name: str, level: float) -> None:
        super().__init__(name)
        self._level = level

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computations of the counts, which all quantiles share, and of the
        quantile.
        """
        counts = metric_types.MetricKey("_errors", **key_options(key))
        computations = statistic_computations(counts, eval_config, ErrorCells)
        return add_derived(
            computations, key, lambda result: quantile(result[0], result[1], self._level)
        )
