"""Metrics of many resamples at once, from sums of which TFMA makes them one by one.

Each equals TFMA's, but for values that are no numbers: NaN here wherever a metric is undefined,
such as the AUC of one class, which TFMA says is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tf_keras

from components.compat.tfma import metrics_of
from components.evaluator.batched.counts import BinaryMatrices, ClassMatrix, Histogram
from components.evaluator.batched.keras import KerasMeans
from components.evaluator.batched.means import (
    BinaryCrossEntropy,
    Determination,
    OwnMean,
    RegressionError,
    SquaredCorrelation,
)
from components.evaluator.batched.resampling.drawing import Drawn, joined_cells
from components.evaluator.batched.twins import SumTwin, Twin
from components.evaluator.own_metrics.classes import THRESHOLDS

Values = np.ndarray
"""[resamples]"""


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """NaN where nothing is below."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


def _means(twin: Twin, drawn: Drawn) -> list[Values]:
    """Of values and weights, one beside the other."""
    assert isinstance(twin, SumTwin)  # noqa: S101 - as registered
    sums = drawn.sums(twin)
    return [_ratio(sums[:, at], sums[:, at + 1]) for at in range(0, twin.width, 2)]


def _keras_means(twin: Twin, drawn: Drawn) -> list[Values]:
    roots = [type(m) is tf_keras.metrics.RootMeanSquaredError for m in metrics_of(twin.combiner)]
    found = zip(_means(twin, drawn), roots, strict=True)
    return [np.sqrt(values) if is_root else values for values, is_root in found]


def _squared_correlation(twin: Twin, drawn: Drawn) -> list[Values]:
    assert isinstance(twin, SumTwin)  # noqa: S101 - as registered
    truth, said, truth2, said2, both, weight = drawn.sums(twin).T
    covered = both - _ratio(truth * said, weight)
    spreads = (truth2 - _ratio(truth**2, weight)) * (said2 - _ratio(said**2, weight))
    return [_ratio(covered**2, spreads)]


def _determination(twin: Twin, drawn: Drawn) -> list[Values]:
    assert isinstance(twin, Determination)  # noqa: S101 - as registered
    spread = drawn.spread(twin)
    return [1 - _ratio(spread.errors, spread.squares)]


DIRECT: dict[type[Twin], Callable[[Twin, Drawn], list[Values]]] = {
    BinaryCrossEntropy: _means,
    Determination: _determination,
    KerasMeans: _keras_means,
    OwnMean: _means,
    RegressionError: _means,
    SquaredCorrelation: _squared_correlation,
}
"""By the twin whose output is the metric; in the order of the computation's keys."""


def _of_matrix(twin: Twin, drawn: Drawn) -> dict[str, Values]:
    """TFMA's and Keras's metrics of right and wrong ones by one threshold."""
    assert isinstance(twin, BinaryMatrices)  # noqa: S101 - as registered
    found, left, false, missed = drawn.sums(twin).T
    recall, specificity = _ratio(found, found + missed), _ratio(left, left + false)
    return {
        "BinaryAccuracy": _ratio(found + left, found + left + false + missed),
        "Precision": _ratio(found, found + false),
        "Recall": recall,
        "F1Score": _ratio(2 * found, 2 * found + false + missed),
        "BalancedAccuracy": (recall + specificity) / 2,
    }


def _of_histogram(twin: Twin, drawn: Drawn) -> dict[str, Values]:
    """Areas under curves, from the weights of both classes by the size of the prediction."""
    assert isinstance(twin, Histogram)  # noqa: S101 - as registered
    parts, cells, totals = drawn.cells(twin)
    columns = joined_cells(cells, totals[:, 2])
    positive = drawn.table(parts, columns, totals[:, 0])
    negative = drawn.table(parts, columns, totals[:, 2] - totals[:, 0])
    # From the largest prediction down.
    positive, negative = positive[:, ::-1], negative[:, ::-1]
    found, false = positive.cumsum(1), negative.cumsum(1)
    positives, negatives = positive.sum(1), negative.sum(1)
    ranked = (negative * (found - positive / 2)).sum(1)
    steps = np.nan_to_num(_ratio(found, found + false)) * positive
    # By Davis and Goadrich (2006), as Keras and TFMA interpolate it.
    said, slope = found + false, np.nan_to_num(_ratio(positive, positive + negative))
    before = said - positive - negative
    intercept = (found - positive) - slope * before
    growth = np.log(np.nan_to_num(_ratio(said, before), nan=1.0))
    interpolated = slope * (positive + intercept * growth)
    return {
        "AUC": _ratio(ranked, positives * negatives),
        "AUCPrecisionRecall": _ratio(interpolated.sum(1), positives),
        "AveragePrecision": _ratio(steps.sum(1), positives),
    }


def _of_classes(twin: Twin, drawn: Drawn) -> dict[str, Values]:
    """Means over the classes that occur in a resample, as `own_metrics.classes` has it."""
    assert isinstance(twin, ClassMatrix)  # noqa: S101 - as registered
    parts, pairs, totals = drawn.cells(twin)
    true, said = np.divmod(pairs, 1 << 20)
    classes, where = np.unique(np.concatenate([true, said]), return_inverse=True)
    true, said = where[: len(pairs)], where[len(pairs) :]
    # Each table as wide as there are classes: the last class is in all of them, if only with 0.
    ends, none = np.array([len(classes) - 1]), np.zeros(1)
    tables = []
    for columns, kept in ((true, true == said), (true, true >= 0), (said, said >= 0)):
        values = np.concatenate([np.where(kept, totals[:, 0], 0.0), none])
        places = np.concatenate([parts, np.zeros(1, np.int64)])
        tables.append(drawn.table(places, np.concatenate([columns, ends]), values))
    found, there, predicted = tables
    occurs = there + predicted > 0
    recall, precision = _ratio(found, there), _ratio(found, predicted)
    return {
        "MacroPrecision": _mean(np.nan_to_num(precision), occurs),
        "MacroRecall": _mean(np.nan_to_num(recall), occurs),
        "MacroF1": _mean(np.nan_to_num(_ratio(2 * found, there + predicted)), occurs),
        "MulticlassBalancedAccuracy": _mean(np.nan_to_num(recall), there > 0),
    }


def _mean(values: np.ndarray, counted: np.ndarray) -> Values:
    return _ratio(np.where(counted, values, 0.0).sum(1), counted.sum(1).astype(np.float64))


@dataclass(frozen=True)
class Formulas:
    """What is made from the sums of one kind of twin."""

    classes: frozenset[str]
    """Of the metrics."""
    suits: Callable[[Any], bool]
    """Whether a twin counts by the thresholds that these metrics have."""
    values: Callable[[Twin, Drawn], dict[str, Values]]
    """By class."""


DERIVED: dict[type[Twin], Formulas] = {
    BinaryMatrices: Formulas(
        frozenset({"BinaryAccuracy", "Precision", "Recall", "F1Score", "BalancedAccuracy"}),
        lambda twin: list(twin.thresholds) == [0.5],
        _of_matrix,
    ),
    Histogram: Formulas(
        frozenset({"AUC", "AUCPrecisionRecall", "AveragePrecision"}),
        lambda twin: twin.cells >= THRESHOLDS,
        _of_histogram,
    ),
    ClassMatrix: Formulas(
        frozenset({"MacroPrecision", "MacroRecall", "MacroF1", "MulticlassBalancedAccuracy"}),
        lambda twin: list(twin.thresholds) == [0.0],
        _of_classes,
    ),
}
"""By the twin that TFMA derives metrics from."""
