"""What each chunk of the data says of labels, weights and columns; `whole.py` judges it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.checks.dates import DateTally, merge_tallies, tally_dates
from components.example_gen.checks.forms import Written, find_written, merge_written
from components.example_gen.checks.numbers import check_numbers
from components.example_gen.checks.weights import check_weights
from components.example_gen.columns.encoded import Cell, find_infinite, label_lengths
from components.example_gen.formats import ExampleGenSettings, Unlabelled
from components.example_gen.notes import FileNotes
from trainer_module.errors import DataError

_COUNTED = 16_384
"""Hashes of rows, of the most frequent."""


@dataclass
class EqualRows:
    """How many rows have the same hash, of the hashes that most rows have; addable.

    Counts are exact of up to 16,384 hashes; of more, too small by rows / 16,384 at most (Misra and
    Gries, 1982; added as by Agarwal et al., 2012: Mergeable summaries).
    """

    hashes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def most(self) -> int:
        """Of one hash."""
        return int(self.counts.max(initial=0))

    def add(self, hashes: np.ndarray) -> None:
        """Counts rows by their hashes, uint64 of shape [rows]."""
        self.merge(EqualRows(*np.unique(hashes, return_counts=True)))

    def merge(self, other: EqualRows) -> None:
        """Counts what another part of the data holds."""
        both, places = np.unique(np.append(self.hashes, other.hashes), return_inverse=True)
        counts = np.bincount(places, np.append(self.counts, other.counts)).astype(np.int64)
        if len(counts) > _COUNTED:
            counts = counts - np.partition(counts, -_COUNTED - 1)[-_COUNTED - 1]
        self.hashes, self.counts = both[counts > 0], counts[counts > 0]


@dataclass
class ChunkReport:
    """What one chunk of the data held; addable, so that the whole can be judged at the end."""

    columns: set[str] = field(default_factory=set)
    rows: Counter[str] = field(default_factory=Counter)
    """Number of rows by split."""
    shards: Counter[str] = field(default_factory=Counter)
    """Number of rows by the file that they were written to."""
    chunks: int = 0
    """Of which this is the report."""
    classes: dict[str, Counter[Any]] = field(default_factory=dict)
    """Number of rows by split and value of the label; empty for regression."""
    label_bounds: tuple[float, float] | None = None
    """The smallest and the largest label, of numbers; None where there are none."""
    weighed: set[str] = field(default_factory=set)
    """The splits with a row that counts."""
    unlabelled: list[Cell] = field(default_factory=list)
    """The first row without a label."""
    unlabelled_rows: int = 0
    equal: EqualRows = field(default_factory=EqualRows)
    """Rows that stay together as their hashes are equal; none where no hash decides."""
    files: FileNotes = field(default_factory=FileNotes)
    written: dict[str, Written] = field(default_factory=dict)
    """How the values of columns are written whose type reads some forms alone."""
    dates: dict[str, DateTally] = field(default_factory=dict)
    """How the values of columns are written of which nobody has said what they are."""

    def add_rows(
        self,
        rows: pa.RecordBatch,
        splits: np.ndarray,
        split_names: Sequence[str],
        first: Cell,
        settings: ExampleGenSettings,
    ) -> None:
        """Counts a batch.

        Args:
          rows: list columns of int64, float32 or binary.
          splits: the index of each row's split; -1 for one that is left out.
          split_names: the names they stand for.
          first: where the batch begins.
          settings: the label and the task.

        Raises:
          DataError: a label is no single number where the task is regression, or several values;
            a number is infinite, or text where numbers are declared.
        """
        self.columns.update(rows.schema.names)
        _check_finite(rows, first, settings)
        check_numbers(rows, first, settings.number_columns)
        self.written = merge_written(self.written, find_written(rows, first, settings.features))
        self.dates = merge_tallies(self.dates, tally_dates(rows, first, settings))
        if settings.weight:
            counts = (check_weights(rows, first, settings.weight) > 0) & (splits >= 0)
            self.weighed |= {split_names[index] for index in np.unique(splits[counts])}
        labelled = _has_label(rows, settings.label)
        self._add_unlabelled(labelled, first)
        kept = splits >= 0
        splits, chosen = splits[kept], labelled & kept
        for name, count in zip(
            split_names, np.bincount(splits, minlength=len(split_names)), strict=True
        ):
            self.rows[name] += int(count)
        if not chosen.any() or len(splits) > chosen.sum():
            return
        labels = rows.column(settings.label)
        if not chosen.all():
            labels = labels.filter(pa.array(chosen))
        _check_labels(labels, np.flatnonzero(chosen), first, settings)
        if settings.task.is_classification:
            self._add_classes(labels.flatten(), splits, split_names)
        else:
            self._add_numbers(labels.flatten())

    def _add_unlabelled(self, labelled: np.ndarray, first: Cell) -> None:
        missing = np.flatnonzero(~labelled)
        self.unlabelled_rows += len(missing)
        if len(missing) and not self.unlabelled:
            self.unlabelled = [Cell(first.file, first.row + int(missing[0]))]

    def _add_classes(
        self, labels: pa.Array, splits: np.ndarray, split_names: Sequence[str]
    ) -> None:
        for split, name in enumerate(split_names):
            counts = pc.value_counts(labels.filter(pa.array(splits == split)))
            values, numbers = counts.field("values"), counts.field("counts")
            total = self.classes.setdefault(name, Counter())
            total.update(dict(zip(values.to_pylist(), numbers.to_pylist(), strict=True)))

    def _add_numbers(self, labels: pa.Array) -> None:
        if len(labels):
            bounds = pc.min_max(labels).as_py()
            self._widen((bounds["min"], bounds["max"]))

    def _widen(self, bounds: tuple[float, float] | None) -> None:
        if self.label_bounds is None or bounds is None:
            self.label_bounds = self.label_bounds or bounds
        else:
            low, high = zip(self.label_bounds, bounds, strict=True)
            self.label_bounds = min(low), max(high)

    @classmethod
    def sum(cls, reports: Iterable[ChunkReport]) -> ChunkReport:
        """One report of all that the reports cover."""
        total = cls()
        for report in reports:
            total.columns |= report.columns
            total.rows += report.rows
            total.shards += report.shards
            total.chunks += report.chunks
            for split, counts in report.classes.items():
                total.classes.setdefault(split, Counter()).update(counts)
            total._widen(report.label_bounds)
            total.weighed |= report.weighed
            total.unlabelled = total.unlabelled or report.unlabelled
            total.unlabelled_rows += report.unlabelled_rows
            total.equal.merge(report.equal)
            total.files.add(report.files)
            total.written = merge_written(total.written, report.written)
            total.dates = merge_tallies(total.dates, report.dates)
        return total


def _check_finite(rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings) -> None:
    """Refuses an infinite number, which would make all means and losses infinite as well."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        # A column that the config declares to be something else is no number to the model.
        is_special = name in (settings.label, settings.weight)
        is_number = not is_special and name not in settings.mixed_columns
        found = find_infinite(column) if is_number else None
        if found is not None:
            place, number = found
            raise DataError(
                f"Column {name!r} is {number} in row {first.row + place} of"
                f" {first.file} (32 bits hold numbers up to 3.4e38): write a number, leave it empty"
                f" for a missing one, or leave the column out by features: {{{name}: {{type:"
                " ignore}}."
            )


def is_kept(rows: pa.RecordBatch, settings: ExampleGenSettings) -> np.ndarray:
    """Whether each row of a batch is one to learn from, [rows]: all are, or those with a label."""
    if settings.unlabelled is Unlabelled.SKIP:
        return _has_label(rows, settings.label)
    return np.ones(rows.num_rows, bool)


def _has_label(rows: pa.RecordBatch, label: str) -> np.ndarray:
    """Whether each row of a batch has a label, [rows]."""
    if label not in rows.schema.names:
        return np.zeros(rows.num_rows, bool)
    return label_lengths(rows.column(label)) > 0


def _check_labels(
    column: pa.Array, row_of: np.ndarray, first: Cell, settings: ExampleGenSettings
) -> None:
    """Refuses a batch's labels, none missing, where one is several values or no number.

    Args:
      column: a list for each label.
      row_of: the place of each in the batch.
      first: where the batch begins.
      settings: the label and the task.
    """
    lengths, labels = label_lengths(column), column.flatten()
    place = int(np.argmax(lengths > 1))
    if lengths.max(initial=0) > 1:
        raise DataError(
            f"Label {settings.label!r} has {lengths[place]} values in row"
            f" {first.row + int(row_of[place])} of {first.file}: every row needs exactly one."
        )
    task = settings.label_task
    if not task.needs:
        return
    is_number = pa.types.is_floating(labels.type) or pa.types.is_integer(labels.type)
    usable = np.zeros(len(labels), bool)
    if is_number or task.label_kind.is_classification:
        usable = task.takes(labels.to_numpy(zero_copy_only=False))
    if not usable.all():
        place = int(np.argmin(usable))
        value, row = labels[place].as_py(), first.row + int(row_of[place])
        shown = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
        raise unusable_label(settings, Cell(first.file, row, shown))


def unusable_label(
    settings: ExampleGenSettings, cell: Cell, way_out: str = "Correct it"
) -> DataError:
    """The error for a label that the task cannot use."""
    task = settings.label_task
    return DataError(
        f"Label {settings.label!r} is {cell.value!r} in row {cell.row} of {cell.file}, but task:"
        f" {task.kind} needs {task.needs} in every row. {way_out}, or choose task:"
        f" {task.otherwise}."
    )


def show_label(value: Any) -> str:
    """A label's value for a message."""
    return repr(value.decode(errors="backslashreplace")) if isinstance(value, bytes) else str(value)
