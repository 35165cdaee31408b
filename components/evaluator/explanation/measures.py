"""Curves, calibration, confusion and residuals of predictions."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import auc as area_under
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_curve

from components.evaluator.dependence import design_effect
from components.evaluator.explanation.record import Bins, Calibration, Confusion, Curve, Residuals
from components.evaluator.explanation.sample import Sample

OTHERS = "others"
_MAX_CURVES, _MAX_POINTS = 10, 200
_CALIBRATION_BINS, _MIN_BIN_ROWS = 10, 20
_MAX_CLASSES = 20
_ERROR_BINS, _MAX_SHOWN = 40, 500
_TAIL = 0.005
"""The share of the smallest and of the largest errors in the first and the last bin."""
_Z = 1.959964
"""The quantile of the normal distribution for an interval at 95 %."""


def compute_curves(sample: Sample, classes: tuple[str, ...]) -> tuple[list[Curve], list[Curve]]:
    """Returns the ROC curves and the precision-recall curves of the most frequent classes.

    Two classes have one curve, of the second class. The area under a precision-recall curve is the
    average precision. Classes without or with all of the rows have no curve.
    """
    frequent = _most_frequent(sample, len(classes))
    shown = [1] if len(classes) == 2 else frequent[:_MAX_CURVES].tolist()
    points = _MAX_POINTS // min(2, len(shown)) if shown else 0
    roc, precision_recall = [], []
    for index in shown:
        is_class, score = sample.labels == index, sample.outputs[:, index]
        weights = sample.weights
        if not (weights[is_class].sum() > 0 and weights[~is_class].sum() > 0):
            continue
        false, true, thresholds = roc_curve(is_class, score, sample_weight=weights)
        area = float(area_under(false, true))
        # The first threshold is infinite, above every probability.
        curve = _curve(classes[index], false, true, area, points, np.minimum(thresholds, 1.0))
        roc.append(curve)
        precision, recall, _ = precision_recall_curve(is_class, score, sample_weight=weights)
        area = float(average_precision_score(is_class, score, sample_weight=weights))
        curve = _curve(classes[index], recall[::-1], precision[::-1], area, points)
        precision_recall.append(curve)
    return roc, precision_recall


def _most_frequent(sample: Sample, classes: int) -> np.ndarray:
    counts = np.bincount(sample.labels.astype(np.int64), minlength=classes)
    return np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]


def _curve(
    label: str,
    x: np.ndarray,
    y: np.ndarray,
    area: float,
    points: int,
    thresholds: np.ndarray | None = None,
) -> Curve:
    """Returns a curve with points at about equal distances along it."""
    length = np.concatenate([[0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
    places = np.searchsorted(length, np.linspace(0, length[-1], points))
    kept = np.unique(np.concatenate([[0], np.minimum(places, len(x) - 1), [len(x) - 1]]))
    return Curve(
        label=label,
        x=_rounded(x[kept]),
        y=_rounded(y[kept]),
        area=area,
        thresholds=[] if thresholds is None else _rounded(thresholds[kept]),
    )


def _rounded(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.round(values, 5)]


def compute_calibration(sample: Sample) -> Calibration | None:
    """Returns the calibration of the second of two classes, or of the most probable class.

    The bounds of a bin are Wilson's interval for the effective number of its rows: Kish's, for rows
    of different weights, divided by the design effect of rows that depend on one another.
    """
    if sample.outputs.shape[1] == 2:
        predicted, is_right = sample.outputs[:, 1], sample.labels == 1
    else:
        predicted = sample.outputs.max(1)
        is_right = sample.labels == sample.outputs.argmax(1)
    used = sample.weights > 0
    predicted, is_right = predicted[used].astype(np.float64), is_right[used].astype(np.float64)
    weights, units = sample.weights[used], np.unique(sample.units[used], return_inverse=True)[1]
    if not len(predicted):
        return None
    effect, _ = design_effect(is_right - predicted, units)
    bins = int(np.clip(len(predicted) // _MIN_BIN_ROWS, 1, _CALIBRATION_BINS))
    parts = np.array_split(np.argsort(predicted, kind="stable"), bins)
    totals = np.array([weights[part].sum() for part in parts])
    effective = [totals[i] ** 2 / (weights[part] ** 2).sum() for i, part in enumerate(parts)]
    means = np.array([np.average(predicted[part], weights=weights[part]) for part in parts])
    rates = np.array([np.average(is_right[part], weights=weights[part]) for part in parts])
    low, high = wilson_interval(rates, np.array(effective) / effect)
    return Calibration(
        predicted=_rounded(means),
        observed=_rounded(rates),
        low=_rounded(low),
        high=_rounded(high),
        rows=[len(part) for part in parts],
        expected_error=float(np.average(np.abs(means - rates), weights=totals)),
    )


def wilson_interval(rates: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds of frequencies at 95 % (Wilson, JASA 22, 1927).

    Args:
      rows: the number of rows of each, which may be fractions.
    """
    centre = (rates + _Z**2 / (2 * rows)) / (1 + _Z**2 / rows)
    spread = np.sqrt(rates * (1 - rates) / rows + (_Z / (2 * rows)) ** 2)
    half = _Z * spread / (1 + _Z**2 / rows)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def compute_confusion(sample: Sample, classes: tuple[str, ...]) -> Confusion:
    """Returns the weighted counts of true and predicted classes.

    Of more than 20 classes, the 20 with most mistakes have a row and a column of their own.
    """
    true, predicted = sample.labels.astype(np.int64), sample.outputs.argmax(1)
    names, place = list(classes), np.arange(len(classes))
    if len(classes) > _MAX_CLASSES:
        wrong = np.where(true != predicted, sample.weights, 0)
        mistakes = np.bincount(true, wrong, len(classes))
        mistakes += np.bincount(predicted, wrong, len(classes))
        kept = np.sort(np.argsort(-mistakes, kind="stable")[:_MAX_CLASSES])
        place = np.full(len(classes), _MAX_CLASSES)
        place[kept] = np.arange(_MAX_CLASSES)
        names = [*(classes[index] for index in kept), OTHERS]
    size = len(names)
    cells = place[true] * size + place[predicted]
    counts = np.bincount(cells, sample.weights, size * size).reshape(size, size)
    return Confusion(classes=names, counts=np.round(counts, 3).tolist())


def compute_residuals(sample: Sample) -> Residuals:
    """Returns the errors, and predictions and labels of rows evenly from all predictions."""
    predicted = sample.outputs[:, 0].astype(np.float64)
    actual = sample.labels.astype(np.float64)
    errors = predicted - actual
    low, high = np.quantile(errors, [_TAIL, 1 - _TAIL])
    counts, edges = np.histogram(
        np.clip(errors, low, high), _ERROR_BINS, (low, high), weights=sample.weights
    )
    order = np.argsort(predicted, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, _MAX_SHOWN).astype(np.int64))]
    return Residuals(
        errors=Bins(edges=edges.tolist(), counts=counts.tolist()),
        predicted=predicted[shown].tolist(),
        actual=actual[shown].tolist(),
    )
