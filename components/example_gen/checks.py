"""Whether the data can be learned from; each rule raises a DataError that says what to change."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.columns import (
    Cell,
    Column,
    ColumnKind,
    is_comma_number,
    is_placeholder,
    label_lengths,
    list_lengths,
)
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import FileNotes, counted
from components.example_gen.weights import check_weights
from trainer_module.errors import DataError
from trainer_module.settings import Task

# The split that a model is trained on, by TFX's convention.
TRAIN_SPLIT = "train"

# Of columns in a message.
_SHOWN_NAMES = 20


@dataclass
class Report:
    """What one chunk of the data held; addable, so that the whole can be judged at the end."""

    columns: set[str] = field(default_factory=set)
    rows: Counter[str] = field(default_factory=Counter)
    """Number of rows by split."""
    classes: dict[str, Counter[Any]] = field(default_factory=dict)
    """Number of rows by split and value of the label; empty for regression."""
    unlabelled: list[Cell] = field(default_factory=list)
    """The first row without a label."""
    unlabelled_rows: int = 0
    files: FileNotes = field(default_factory=FileNotes)

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
          splits: the index of each row's split.
          split_names: the names they stand for.
          first: where the batch begins.
          settings: the label and the task.

        Raises:
          DataError: a label is no single number where the task is regression, or several values;
            a number is infinite.
        """
        self.columns.update(rows.schema.names)
        _check_finite(rows, first, settings)
        if settings.weight:
            check_weights(rows, first, settings.weight)
        for name, count in zip(
            split_names, np.bincount(splits, minlength=len(split_names)), strict=True
        ):
            self.rows[name] += int(count)
        if settings.label not in rows.schema.names:
            self._add_unlabelled(np.zeros(rows.num_rows, np.int64), first)
            return
        labels = rows.column(settings.label)
        lengths = label_lengths(labels)
        self._add_unlabelled(lengths, first)
        if lengths.min(initial=1) == 0:
            return
        _check_labels(labels.flatten(), lengths, first, settings)
        if settings.task.is_classification:
            self._add_classes(labels.flatten(), splits, split_names)

    def _add_unlabelled(self, lengths: np.ndarray, first: Cell) -> None:
        missing = np.flatnonzero(lengths == 0)
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

    @classmethod
    def sum(cls, reports: Iterable[Report]) -> Report:
        """One report of all that the reports cover."""
        total = cls()
        for report in reports:
            total.columns |= report.columns
            total.rows += report.rows
            for split, counts in report.classes.items():
                total.classes.setdefault(split, Counter()).update(counts)
            total.unlabelled = total.unlabelled or report.unlabelled
            total.unlabelled_rows += report.unlabelled_rows
            total.files.add(report.files)
        return total


def _check_finite(rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings) -> None:
    """Refuses an infinite number, which would make all means and losses infinite as well."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        # A column that the config declares to be something else is no number to the model; one
        # without any value has no type.
        is_special = name in (settings.label, settings.weight)
        is_number = not is_special and name not in settings.mixed_columns
        if not is_number or pa.types.is_null(column.type):
            continue
        values = column.flatten()
        if not pa.types.is_floating(values.type):
            continue
        infinite = np.isinf(values.to_numpy())
        if infinite.any():
            place = int(np.argmax(infinite))
            row = int(np.searchsorted(np.cumsum(list_lengths(column)), place, side="right"))
            raise DataError(
                f"Column {name!r} is {values[place].as_py()} in row {first.row + row} of"
                f" {first.file} (32 bits hold numbers up to 3.4e38): write a number, leave it empty"
                f" for a missing one, or leave the column out by features: {{{name}: {{type:"
                " ignore}}."
            )


def _check_labels(
    labels: pa.Array, lengths: np.ndarray, first: Cell, settings: ExampleGenSettings
) -> None:
    """Refuses a batch's labels, none missing, where one is several values or no number."""
    row = int(np.argmax(lengths > 1))
    if lengths.max(initial=0) > 1:
        raise DataError(
            f"Label {settings.label!r} has {lengths[row]} values in row {first.row + row} of"
            f" {first.file}: every row needs exactly one."
        )
    if settings.task is not Task.REGRESSION:
        return
    if pa.types.is_integer(labels.type):
        return
    numeric = pa.types.is_floating(labels.type)
    bad = ~np.isfinite(labels.to_numpy()) if numeric else np.ones(len(labels), bool)
    if bad.any():
        row = int(np.argmax(bad))
        raise regression_label_error(
            settings.label, Cell(first.file, first.row + row, _show(labels[row].as_py()))
        )


def regression_label_error(label: str, cell: Cell, way_out: str = "Correct it") -> DataError:
    """The error for a label that is no finite number where the task is regression."""
    return DataError(
        f"Label {label!r} is {cell.value!r} in row {cell.row} of {cell.file}, but task: regression"
        f" needs a finite number in every row. {way_out}, or choose task: binary or multiclass."
    )


def check_label_column(columns: Iterable[str], label: str, file: str = "the data") -> None:
    """Raises DataError unless a file has a column for the label."""
    names = sorted(columns)
    if label in names:
        return
    near = difflib.get_close_matches(label, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "set data.label to one of them."
    if len(names) == 1 and any(separator in names[0] for separator in ",;\t|"):
        hint = "name what separates the columns by data.csv: {delimiter: ...}."
    raise DataError(
        f"There is no label column {label!r} in {file}; found {show_names(names)}: {hint}"
    )


def show_names(names: Sequence[str]) -> str:
    """Names of columns for a message: the first ones, on one line."""
    shown = [name if name.isprintable() else repr(name)[:80] for name in names[:_SHOWN_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def check_column(name: str, column: Column, settings: ExampleGenSettings) -> None:
    """Raises DataError where a column of numbers holds some text, or a regression label does."""
    cell = column.first_text
    if name == settings.label:
        # A class may be a number or a name.
        if (
            settings.task is Task.REGRESSION
            and column.kind is ColumnKind.BYTES
            and cell is not None
        ):
            raise regression_label_error(name, cell, _way_out(column, settings))
        return
    if cell is None or not column.is_mixed or name in settings.mixed_columns:
        return
    raise DataError(
        f"Column {name!r} holds {column.numbers} numbers, but {cell.value!r} in row {cell.row} of"
        f" {cell.file} is not a number (such values: {column.texts}). {_way_out(column, settings)},"
        f" or accept numbers and text with `features: {{{name}: {{type: categorical}}}}`."
    )


def _way_out(column: Column, settings: ExampleGenSettings) -> str:
    """What to do about text among numbers, by what the first one is."""
    assert column.first_text is not None  # noqa: S101 - whoever asks has seen it
    value = column.first_text.value
    if settings.format == "csv" and is_placeholder(value):
        known = [*settings.csv.missing_values, *sorted(column.placeholders)]
        return f"If it means missing, write `data.csv: {{missing_values: {json.dumps(known)}}}`"
    if settings.format == "csv" and is_comma_number(value):
        return 'If its comma is a decimal one, write `data.csv: {decimal: ","}`'
    return "Correct it (an empty cell means missing)"


def check_report(
    report: Report,
    split_names: Sequence[str],
    hash_splits: bool,
    settings: ExampleGenSettings,
    could_stratify: bool = False,
) -> list[str]:
    """Judges the data as a whole.

    Args:
      report: the sum over all chunks.
      split_names: the splits that are to be.
      hash_splits: whether the splits are shares of one input rather than inputs of their own.
      settings: label and task.
      could_stratify: whether data.stratify is a way out.

    Returns:
      What people should know of data that can be used.

    Raises:
      DataError: there is only a label, a split is empty, labels are missing, or the classes cannot
        be learned.
    """
    if report.columns == {settings.label}:
        raise DataError(
            f"The label {settings.label!r} is the data's only column: there is nothing to predict"
            " it from; check data.path and data.label."
        )
    notes = report.files.sentences()
    if not report.rows.total() and notes:
        raise DataError(f"No picture can be read: {notes[0]}; replace them with complete ones.")
    _check_splits(report.rows, split_names, hash_splits, settings.order_by)
    if report.unlabelled_rows:
        check_label_column(report.columns, settings.label)
        cell = report.unlabelled[0]
        raise DataError(
            f"Label {settings.label!r} is missing in {counted(report.unlabelled_rows, 'row')},"
            f" first in row {cell.row} of {cell.file}: fill it in, or leave such rows out."
        )
    if settings.task.is_classification:
        notes += _check_classes(report.classes, split_names, settings, could_stratify)
    return notes


def _check_splits(
    rows: Counter[str], split_names: Sequence[str], hash_splits: bool, order_by: str
) -> None:
    empty = [name for name in split_names if not rows[name]]
    if not empty:
        return
    counts = ", ".join(f"{name} {rows[name]}" for name in split_names)
    change = "give it a larger share in data.splits, or more data"
    if not hash_splits:
        change = "check its glob in data.splits"
    elif order_by:
        change = f"{order_by!r} (data.order_by) has too few different values to be split by"
    raise DataError(f"Split {empty[0]!r} got no rows (rows per split: {counts}): {change}.")


def _check_classes(
    classes: dict[str, Counter[Any]],
    split_names: Sequence[str],
    settings: ExampleGenSettings,
    could_stratify: bool,
) -> list[str]:
    """Refuses classes that cannot be learned, and returns notes on those that are not measured."""
    total: Counter[Any] = sum(classes.values(), Counter())
    shown = ", ".join(_show(value) for value in sorted(total)[:5])
    shown += " and more" if len(total) > 5 else ""
    if len(total) == 1:
        raise DataError(
            f"Label {settings.label!r} is {shown} in every row: a classifier needs two classes or"
            " more; check data.label and the data."
        )
    if settings.task is Task.BINARY and len(total) > 2:
        other = "regression" if any(_has_fraction(value) for value in total) else "multiclass"
        raise DataError(
            f"Label {settings.label!r} has {len(total)} classes ({shown}), but task: binary needs"
            f" two: choose task: {other}, or check data.label."
        )
    notes = []
    way_out = "add examples of it, or leave it out"
    if could_stratify:
        way_out = "write data: {stratify: true}, which trains on each class, or add examples of it"
    train = TRAIN_SPLIT if TRAIN_SPLIT in split_names else split_names[0]
    for split in split_names:
        unseen = sorted(value for value in classes[split] if value not in classes[train])
        if unseen:
            value = unseen[0]
            raise DataError(
                f"Class {_show(value)} of label {settings.label!r} occurs"
                f" {counted(classes[split][value], 'time')} in split {split!r} but never in"
                f" {train!r} (such classes: {len(unseen)}): {way_out}."
            )
        absent = sorted(value for value in classes[train] if value not in classes[split])
        if absent:
            notes.append(
                f"split {split!r} has no example of {counted(len(absent), 'class')} that {train!r}"
                f" has, such as {_show(absent[0])}"
            )
    return notes


def _show(value: Any) -> str:
    return repr(value.decode(errors="backslashreplace")) if isinstance(value, bytes) else str(value)


def _has_fraction(value: Any) -> bool:
    return isinstance(value, float) and not value.is_integer()
