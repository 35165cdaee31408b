"""Twins of what TFMA counts by the size of a prediction, or by pairs of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import (
    calibration_histogram,
    multi_class_confusion_matrix_metrics,
)

from components.compat import tfma
from components.evaluator.batched.rows import Members, ModelRows, NotByBatches, weights_of
from components.evaluator.batched.twins import Sums, SumTwin, Twin, twin_for


@twin_for(tfma.BINARY_MATRICES)
class BinaryMatrices(SumTwin):
    """Found, wrongly found, missed and rightly left, by threshold."""

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """Without samples of examples."""
        return super().suits(combiner) and not tfma.samples_examples(combiner)

    def __init__(self, combiner: Any) -> None:
        self.thresholds = tfma.matrix_thresholds(combiner)
        self.width = 4 * len(self.thresholds)
        super().__init__(combiner)

    def values(self, batch: ModelRows) -> np.ndarray:
        """In the order of TFMA's matrix, for each threshold."""
        weights, columns = weights_of(self.combiner, batch), []
        for threshold in self.thresholds:
            said = batch.numbers.astype(np.float64) > threshold
            true = _is_true(self.combiner, batch.labels, threshold)
            columns += [true & said, ~true & ~said, ~true & said, true & ~said]
        return np.stack(columns, axis=1) * weights[:, np.newaxis]

    def accumulator(self, number: int) -> dict[float, Any]:
        """TFMA's matrices, by threshold."""
        counts = self.totals[number].reshape(-1, 4).tolist()
        matrices: dict[float, Any] = tfma.matrix_accumulator(self.thresholds, counts)
        return matrices


def _is_true(combiner: Any, labels: np.ndarray, threshold: float) -> np.ndarray:
    if not tfma.takes_shares(combiner):
        return labels > threshold
    _check_binary(labels)
    return labels == 1


def _check_binary(labels: np.ndarray) -> None:
    """Labels between the classes, or of none, are TFMA's to divide or to refuse."""
    if not np.isin(labels, (0, 1)).all():
        raise NotByBatches("labels other than 0 and 1")


class CellTwin(Twin):
    """Base of the twins that count in many cells of which a slice has few: [cells used, width].

    A slice is all of 10,000 buckets wide; of 1,000 slices that would be a gigabyte.
    """

    width: int
    cells: int
    """The number of a slice's cells, at least."""

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        self._sums: Sums = np.zeros(0, np.int64), np.zeros((0, self.width))
        self._waiting: list[Sums] = []

    @property
    def sums(self) -> Sums:
        """The cells, and their totals."""
        self._join()
        return self._sums

    @sums.setter
    def sums(self, sums: Sums) -> None:
        self._sums, self._waiting = sums, []

    @property
    def places(self) -> np.ndarray:
        """[cells used], slice times `cells` plus cell, in ascending order."""
        return self.sums[0]

    @property
    def totals(self) -> np.ndarray:
        """[cells used, width]."""
        return self.sums[1]

    def _add(self, places: np.ndarray, values: np.ndarray) -> None:
        self._waiting.append(_added_up([(places, values)]))
        # Merged once they are as many: so each cell is sorted a few times, however many batches.
        if sum(len(waiting[0]) for waiting in self._waiting) > len(self._sums[0]):
            self._join()

    def _join(self) -> None:
        if self._waiting:
            self.sums = _added_up([self._sums, *self._waiting])

    def merge(self, other: CellTwin, places: np.ndarray, count: int) -> None:
        """Adds the cells of the other one."""
        del count
        slices, cells = np.divmod(other.places, self.cells)
        self._add(places[slices] * self.cells + cells, other.totals)

    def of_slice(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The cells of a slice that were used, [cells], and their sums, [cells, width]."""
        bounds = np.array([number, number + 1]) * self.cells
        first, end = np.searchsorted(self.places, bounds)
        return self.places[first:end] - bounds[0], self.totals[first:end]


def _added_up(parts: Sequence[Sums]) -> Sums:
    """Cells and their totals, each cell once and in ascending order."""
    places, where = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    values = np.concatenate([part[1] for part in parts])
    columns = [np.bincount(where, column, len(places)) for column in values.T]
    return places, np.stack(columns, axis=1)


@twin_for(tfma.HISTOGRAM)
class Histogram(CellTwin):
    """Labels, predictions and examples by the bucket of the prediction."""

    width = 3

    def __init__(self, combiner: Any) -> None:
        self.scale = tfma.Scale.of(combiner)
        self.cells = self.scale.buckets + 2
        super().__init__(combiner)

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """By predictions, of labels that are classes."""
        return super().suits(combiner) and tfma.is_by_prediction(combiner)

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the rows to the buckets of their predictions; those of no weight to none."""
        _check_binary(batch.labels)
        scale, said = self.scale, batch.numbers.astype(np.float64)
        if np.isnan(said).any():
            raise NotByBatches("predictions that are not numbers")
        buckets = (said - scale.left) / scale.width * scale.buckets + 1
        buckets = np.clip(buckets, 0, self.cells - 1).astype(np.int64)
        weights = weights_of(self.combiner, batch)
        values = np.stack([batch.labels, said, np.ones(len(said))], axis=1)
        values = values * weights[:, np.newaxis]
        counted = weights[members.rows] != 0
        rows, slices = members.rows[counted], members.slices[counted]
        self._add(slices * self.cells + buckets[rows], values[rows])

    def accumulator(self, number: int) -> dict[int, Any]:
        """TFMA's buckets, by number."""
        buckets, sums = self.of_slice(number)
        return {
            bucket: calibration_histogram.Bucket(bucket, *values)
            for bucket, values in zip(buckets.tolist(), sums.tolist(), strict=True)
        }


@twin_for(tfma.CLASS_MATRIX)
class ClassMatrix(CellTwin):
    """How often each class is taken for each."""

    width = 1
    cells = 1 << 40
    """Pairs of classes: the true one times 2^20 plus the predicted one, each counted from -1."""

    def __init__(self, combiner: Any) -> None:
        self.thresholds = tfma.class_thresholds(combiner)
        super().__init__(combiner)

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """By one threshold, as TFMA's for several depend on their order."""
        return super().suits(combiner) and len(tfma.class_thresholds(combiner)) == 1

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the pair of each row."""
        if batch.predictions.shape[1] == 1:
            raise NotByBatches("a matrix of classes of one output")
        said = batch.predictions.argmax(1)
        score = np.take_along_axis(batch.predictions, said[:, np.newaxis], 1)[:, 0]
        none = multi_class_confusion_matrix_metrics.NO_PREDICTED_CLASS_ID
        said = np.where(score <= self.thresholds[0], none, said)
        pairs = (batch.labels.astype(np.int64) + 1 << 20) + said + 1
        weights = weights_of(self.combiner, batch)[:, np.newaxis]
        self._add(members.slices * self.cells + pairs[members.rows], weights[members.rows])

    def accumulator(self, number: int) -> Any:
        """TFMA's matrix, by its one threshold."""
        pairs, sums = self.of_slice(number)
        true, said = np.divmod(pairs, 1 << 20)
        entry = multi_class_confusion_matrix_metrics.MatrixEntryKey
        keys = map(entry, (true - 1).tolist(), (said - 1).tolist())
        filled = self.combiner.create_accumulator()
        filled[self.thresholds[0]] = dict(zip(keys, sums[:, 0].tolist(), strict=True))
        return filled
