"""Label leakage: how well one column alone predicts the label of held-out rows.

The prediction for a value is learnt from four fifths of the rows and measured on the others, so
that a column of many values, such as an identifier, is no better than chance. The order of numbers
is the exception, as only its direction is learnt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trainer_module.settings import Task

_FEWEST_ROWS = 50
_FEWEST_OTHERS = 10
"""The least number of rows, or groups of rows, with the most frequent label, and with all
others."""
_FOLDS = 5
_ROWS_PER_BIN = 20
_RANKS = "R² of ranks"
_GIVEN_AWAY = {"AUC": 0.99, "accuracy": 0.99, _RANKS: 0.998}
"""The measures from which a single column counts as label leakage."""
_MISTAKES_LEFT = 0.1
"""The share of a constant prediction's mistakes that a leaking column may make."""
_PERFECT = 1 - 1e-9


@dataclass(frozen=True)
class Strength:
    """The strength with which a column alone predicts the label."""

    column: str
    measure: str
    value: float
    gives_away: bool

    def __str__(self) -> str:
        return f"{self.measure} {self.value:.4f}"


class Target:
    """The label, against which columns are tested one by one."""

    def __init__(self, labels: np.ndarray, task: Task, groups: pa.Array | None = None) -> None:
        """Assigns the rows to folds.

        Args:
          labels: [rows], numbers of classes from 0, or numbers; NaN where a label is missing.
          task: the task.
          groups: [rows], equal where rows are kept together; None if rows are independent.
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
        """Returns how well a column predicts the label; None if there are too few rows.

        Measures on all rows, where a missing value may carry information, and on those with a
        value.

        Args:
          column: the column's name.
          values: [rows].
          numbers: [rows], the values as numbers, NaN where one is missing; None if they are not
            numbers.
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
        """Returns the measure that means label leakage on some rows; None if they are too few.

        With few rows the measure is higher, as a column that is merely good may reach as much by
        chance.
        """
        if len(rows) < _FEWEST_ROWS:
            return None
        labels, groups = self._labels[rows], self._groups[rows]
        values, counts = np.unique(labels, return_counts=True)
        is_usual = labels == values[counts.argmax()]
        fewest = len(np.unique(groups[~is_usual]))
        if self._measure != _RANKS:
            fewest = min(fewest, len(np.unique(groups[is_usual])))
        if fewest < _FEWEST_OTHERS:
            return None
        needed = _GIVEN_AWAY[self._measure]
        if self._measure == _RANKS:
            return needed
        if self._measure == "accuracy":
            needed = max(needed, 1 - _MISTAKES_LEFT * float(1 - is_usual.mean()))
        return min(needed + math.sqrt(needed * (1 - needed) / fewest), _PERFECT)

    def _reached(
        self, rows: np.ndarray, codes: np.ndarray, numbers: np.ndarray | None
    ) -> Iterator[float]:
        """Yields the measure by distinct values, by ranges of numbers, and by their order."""
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
        """Returns the measure of predicting each fold from the other folds' rows with the same
        value.
        """
        answer = _frequent if self._measure == "accuracy" else _mean
        answers = np.zeros(len(labels))
        codes = np.unique(codes, return_inverse=True)[1]
        for fold in range(_FOLDS):
            is_held_out, rest = folds == fold, folds != fold
            if is_held_out.any() and rest.any():
                answers[is_held_out] = answer(codes[rest], labels[rest], int(codes.max()) + 1)[
                    codes[is_held_out]
                ]
        if self._measure == "AUC":
            return _area(labels, answers)
        if self._measure == "accuracy":
            return float(np.mean(answers == labels))
        spread = np.var(labels)
        return float(1 - np.mean((answers - labels) ** 2) / spread) if spread else 0.0


def value_codes(values: pa.Array) -> np.ndarray:
    """Returns a number for each value, in the order of first rows; missing values have one of their
    own.
    """
    return values.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)


def _mean(codes: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Returns the mean label of each code; the overall mean for codes without rows."""
    rows = np.bincount(codes, minlength=count)
    sums = np.bincount(codes, labels, minlength=count)
    return np.where(rows > 0, sums / np.maximum(rows, 1), labels.mean())


def _frequent(codes: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Returns the most frequent label of each code; the overall one for codes without rows."""
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
    """Returns the bin of each number, in bins of about equally many rows; missing numbers have
    their own.
    """
    bins = max(len(numbers) // _ROWS_PER_BIN, 2)
    if np.isnan(numbers).all():
        return np.zeros(len(numbers), int)
    edges = np.unique(np.nanquantile(numbers, np.linspace(0, 1, bins + 1)[1:-1]))
    return np.where(np.isnan(numbers), len(edges) + 1, np.searchsorted(edges, numbers))


def ranks_of(numbers: np.ndarray) -> np.ndarray:
    """Returns the rank of each number; equal numbers share one."""
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[inverse]
