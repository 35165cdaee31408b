"""Label leakage: how well a column alone predicts the label of held-out rows.

The prediction for each value is learned from four fifths of the rows and measured on the remaining
fifth. A column with many values, such as an identifier, is therefore not better than chance. If
numbers predict the label by their order, all rows are used, as only the direction is learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer_module.settings import Task

_MIN_ROWS = 50
"""The minimum number of rows for the test."""
_MIN_LABEL_ROWS = 10
"""The minimum number of rows, or groups of rows, with the most frequent label, and with other
labels."""
_FOLDS = 5
_ROWS_PER_BIN = 20
_RANKS = "R² of ranks"
_MIN_LEAKAGE = {"AUC": 0.99, "accuracy": 0.99, _RANKS: 0.998}
"""The minimum of each measure that counts as label leakage."""
_MAX_MISTAKES = 0.1
"""The maximum mistakes of a column that leaks the label, as a share of the mistakes of a constant
prediction."""
_PERFECT = 1 - 1e-9


@dataclass(frozen=True)
class Strength:
    """How well a column alone predicts the label."""

    column: str
    measure: str
    value: float
    gives_away: bool
    """Whether the column leaks the label."""

    def __str__(self) -> str:
        return f"{self.measure} {self.value:.4f}"


def label_numbers(labels: pa.Array, numbers: np.ndarray | None, task: Task) -> np.ndarray:
    """Returns the labels of a regression, or indices of the sorted classes, with NaN for missing
    labels.

    The second of two sorted classes is the positive class.
    """
    if not task.is_classification:
        return np.full(len(labels), np.nan) if numbers is None else numbers
    classes = pc.rank(labels, null_placement="at_end", tiebreaker="dense").to_numpy() - 1.0
    classes[~labels.is_valid().to_numpy(zero_copy_only=False)] = np.nan
    return classes


class Target:
    """The label, which columns are tested to predict one by one."""

    def __init__(self, labels: np.ndarray, task: Task, groups: pa.Array | None = None) -> None:
        """Assigns the rows to folds.

        Args:
          labels: the labels, or the indices of classes, [rows], with NaN for missing labels.
          groups: the group of each row, [rows], or None if rows are independent.
        """
        self._groups = np.arange(len(labels)) if groups is None else value_codes(groups)
        folds = np.arange(self._groups.max(initial=0) + 1) % _FOLDS
        self._folds = np.random.default_rng(0).permutation(folds)[self._groups]
        if not task.is_classification:
            self._measure = _RANKS
        else:
            self._measure = "AUC" if np.nanmax(labels, initial=0) == 1 else "accuracy"
        if self._measure == "accuracy":
            # A fold may hold all rows of a rare class.
            _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
            labels = np.where(counts[classes] < _FOLDS, np.nan, labels)
        self._labels = labels

    def strength_of(
        self, column: str, values: pa.Array, numbers: np.ndarray | None
    ) -> Strength | None:
        """Returns how well a column predicts the label, or None if there are too few rows.

        The column is tested on all rows, where missing values may predict the label, and on the
        rows with a value. The better result is returned.

        Args:
          column: the column's name.
          values: the values, [rows].
          numbers: the values as numbers, [rows], with NaN for missing values, or None if the values
            are not numbers.
        """
        is_known = values.is_valid().to_numpy(zero_copy_only=False)
        if numbers is not None:
            is_known = is_known & ~np.isnan(numbers)
        views = [np.ones(len(values), bool)] + ([] if is_known.all() else [is_known])
        codes = value_codes(values)
        strengths = []
        for view in views:
            rows = np.flatnonzero(view & ~np.isnan(self._labels))
            needed = self._needed(rows)
            if needed is not None:
                reached = max(self._reached(rows, codes, numbers))
                strengths.append((reached >= needed, reached))
        if not strengths:
            return None
        gives_away, reached = max(strengths)
        return Strength(column, self._measure, reached, gives_away)

    def _needed(self, rows: np.ndarray) -> float | None:
        """Returns the minimum of the measure that means label leakage, or None for too few rows.

        With fewer rows the minimum is higher, as a column may reach a high measure by chance.
        """
        if len(rows) < _MIN_ROWS:
            return None
        labels, groups = self._labels[rows], self._groups[rows]
        values, counts = np.unique(labels, return_counts=True)
        is_most_frequent = labels == values[counts.argmax()]
        label_rows = len(np.unique(groups[~is_most_frequent]))
        if self._measure != _RANKS:
            label_rows = min(label_rows, len(np.unique(groups[is_most_frequent])))
        if label_rows < _MIN_LABEL_ROWS:
            return None
        needed = _MIN_LEAKAGE[self._measure]
        if self._measure == _RANKS:
            return needed
        if self._measure == "accuracy":
            needed = max(needed, 1 - _MAX_MISTAKES * float(1 - is_most_frequent.mean()))
        return min(needed + math.sqrt(needed * (1 - needed) / label_rows), _PERFECT)

    def _reached(
        self, rows: np.ndarray, codes: np.ndarray, numbers: np.ndarray | None
    ) -> Iterator[float]:
        """Yields the measure of predictions by distinct values, by bins of numbers, and by their
        order.
        """
        labels, folds = self._labels[rows], self._folds[rows]
        if self._measure == _RANKS:
            labels = ranks_of(labels)
        yield self._held_out(labels, folds, codes[rows])
        if numbers is None:
            return
        numbers = numbers[rows]
        yield self._held_out(labels, folds, _bins(numbers))
        is_known = ~np.isnan(numbers)
        if is_known.all() and np.ptp(numbers) and np.ptp(labels):
            ranks = ranks_of(numbers)
            if self._measure == "AUC":
                area = _area(labels, ranks)
                yield max(area, 1 - area)
            elif self._measure == _RANKS:
                yield float(np.corrcoef(ranks, labels)[0, 1] ** 2)

    def _held_out(self, labels: np.ndarray, folds: np.ndarray, codes: np.ndarray) -> float:
        """Returns the measure if each fold is predicted from the rows of other folds with the same
        code.
        """
        predict = _most_frequent if self._measure == "accuracy" else _mean
        predictions = np.zeros(len(labels))
        codes = np.unique(codes, return_inverse=True)[1]
        for fold in range(_FOLDS):
            is_held_out, is_known = folds == fold, folds != fold
            if is_held_out.any() and is_known.any():
                by_code = predict(codes[is_known], labels[is_known], int(codes.max()) + 1)
                predictions[is_held_out] = by_code[codes[is_held_out]]
        if self._measure == "AUC":
            return _area(labels, predictions)
        if self._measure == "accuracy":
            return float(np.mean(predictions == labels))
        spread = np.var(labels)
        return float(1 - np.mean((predictions - labels) ** 2) / spread) if spread else 0.0


def value_codes(values: pa.Array) -> np.ndarray:
    """Returns the index of each value among the distinct values, in the order of their first rows.

    Missing values count as a distinct value.
    """
    return values.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)


def _mean(codes: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Returns the mean label of each code. Codes without rows have the mean of all labels."""
    rows = np.bincount(codes, minlength=count)
    sums = np.bincount(codes, labels, minlength=count)
    return np.where(rows > 0, sums / np.maximum(rows, 1), labels.mean())


def _most_frequent(codes: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Returns the most frequent label of each code. For codes without rows, it is the most frequent
    of all labels.
    """
    frequent = np.full(count, np.bincount(labels.astype(int)).argmax())
    pairs, rows = np.unique(np.stack([codes, labels.astype(int)]), axis=1, return_counts=True)
    order = np.argsort(rows, kind="stable")
    frequent[pairs[0, order]] = pairs[1, order]
    return frequent


def _area(labels: np.ndarray, scores: np.ndarray) -> float:
    """Returns the area under the ROC curve."""
    positive = labels == 1
    ahead = ranks_of(scores)[positive].sum() - positive.sum() ** 2 / 2
    return float(ahead / (positive.sum() * (~positive).sum()))


def _bins(numbers: np.ndarray) -> np.ndarray:
    """Returns the bin of each number. The bins have about equally many rows, and missing numbers
    have their own bin.
    """
    bins = max(len(numbers) // _ROWS_PER_BIN, 2)
    if np.isnan(numbers).all():
        return np.zeros(len(numbers), int)
    edges = np.unique(np.nanquantile(numbers, np.linspace(0, 1, bins + 1)[1:-1]))
    return np.where(np.isnan(numbers), len(edges) + 1, np.searchsorted(edges, numbers))


def ranks_of(numbers: np.ndarray) -> np.ndarray:
    """Returns the rank of each number. Equal numbers have the same rank."""
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[inverse]
