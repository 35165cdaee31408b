"""The report on the labels, weights and columns of the data.

Each chunk of the data has a report. The sum of the reports is checked.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.hints import names_ids
from components.example_gen.checks.dates import (
    DateTally,
    check_dates,
    find_dates,
    merge_tallies,
    tally_dates,
)
from components.example_gen.checks.values import (
    Notations,
    check_numbers,
    check_weights,
    find_notations,
    merge_notations,
)
from components.example_gen.columns.encoded import (
    Cell,
    excerpt,
    find_infinite,
    label_lengths,
    show_names,
)
from components.example_gen.formats import ExampleGenSettings, Unlabelled
from components.example_gen.notes import DataNotes, FileNotes
from trainer_module.errors import DataError, as_key, counted, enumerate_names
from trainer_module.features.date_formats import find_format


@dataclass
class ChunkReport:
    """The counts of one chunk of the data, or the sum of several chunks' counts."""

    columns: set[str] = field(default_factory=set)
    rows: Counter[str] = field(default_factory=Counter)
    """The number of rows by split."""
    shards: Counter[str] = field(default_factory=Counter)
    """The number of rows in each written file."""
    chunks: int = 0
    """The number of chunks that the report covers."""
    classes: dict[str, Counter[Any]] = field(default_factory=dict)
    """The number of rows with each class, by split. For regression, the number of rows with each
    label if the label has the name of an identifier, otherwise an empty dictionary."""
    label_bounds: tuple[float, float] | None = None
    """The smallest and the largest label of a regression, or None if there are no labels."""
    weighed: set[str] = field(default_factory=set)
    """The splits with a row whose weight is above 0."""
    unlabelled: list[Cell] = field(default_factory=list)
    """The first row without a label, or an empty list if all rows have labels."""
    unlabelled_rows: int = 0
    files: FileNotes = field(default_factory=FileNotes)
    """The counts of pictures that are converted or left out."""
    notations: dict[str, Notations] = field(default_factory=dict)
    """The notations of declared columns whose type allows several notations."""
    dates: dict[str, DateTally] = field(default_factory=dict)
    """The tallies of date formats in columns that the config does not declare."""

    def add_rows(
        self,
        rows: pa.RecordBatch,
        splits: np.ndarray,
        split_names: Sequence[str],
        first: Cell,
        settings: ExampleGenSettings,
    ) -> None:
        """Checks a batch and counts its rows.

        Args:
          splits: the index of each row's split, [rows], or -1 for a row that is left out.

        Raises:
          DataError: a row has several labels, a label is not of the task's type, a number is
            infinite, a column that is declared numeric holds text, a weight is not usable, or a
            column has two notations.
        """
        self.columns.update(rows.schema.names)
        _check_finite(rows, first, settings)
        check_numbers(rows, first, settings.number_columns)
        self.notations = merge_notations(
            self.notations, find_notations(rows, first, settings.features)
        )
        self.dates = merge_tallies(self.dates, tally_dates(rows, first, settings))
        if settings.weight:
            is_weighed = (check_weights(rows, first, settings.weight) > 0) & (splits >= 0)
            self.weighed |= {split_names[index] for index in np.unique(splits[is_weighed])}
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
            if names_ids(settings.label) and sum(map(len, self.classes.values())) < _MAX_NUMBERS:
                self._add_classes(labels.flatten(), splits, split_names)

    def _add_unlabelled(self, labelled: np.ndarray, first: Cell) -> None:
        missing = np.flatnonzero(~labelled)
        self.unlabelled_rows += len(missing)
        if len(missing) and not self.unlabelled:
            self.unlabelled = [first.below(missing[0])]

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
        """Returns the sum of the reports."""
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
            total.files.add(report.files)
            total.notations = merge_notations(total.notations, report.notations)
            total.dates = merge_tallies(total.dates, report.dates)
        return total


def _check_finite(rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings) -> None:
    """Raises DataError for an infinite number, as means and losses would be infinite too."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        # Labels and weights have their own checks. Columns that are declared categorical or ignored
        # are not numeric inputs of the model.
        is_special = name in (settings.label, settings.weight)
        is_number = not is_special and name not in settings.mixed_columns
        infinite = find_infinite(column) if is_number else None
        if infinite is not None:
            row, number = infinite
            raise DataError(
                f"Column {name!r} is {number} in {first.below(row)} (32 bits hold numbers up to"
                " 3.4e38): write a finite number, leave the cell empty if the value is missing, or"
                f" ignore the column by features: {{{as_key(name)}: {{type: ignore}}}}."
            )


def is_kept(rows: pa.RecordBatch, settings: ExampleGenSettings) -> np.ndarray:
    """Returns whether each row of a batch is kept, [rows].

    With `unlabelled: skip`, rows without a label are left out.
    """
    if settings.unlabelled is Unlabelled.SKIP:
        return _has_label(rows, settings.label)
    return np.ones(rows.num_rows, bool)


def _has_label(rows: pa.RecordBatch, label: str) -> np.ndarray:
    """Returns whether each row of a batch has a label, [rows]."""
    if label not in rows.schema.names:
        return np.zeros(rows.num_rows, bool)
    return label_lengths(rows.column(label)) > 0


def _check_labels(
    column: pa.Array, label_rows: np.ndarray, first: Cell, settings: ExampleGenSettings
) -> None:
    """Raises DataError for a label that has several values or that the task cannot use.

    Args:
      column: the labels, as lists that are not empty.
      label_rows: the row of each label in the batch.
    """
    lengths, labels = label_lengths(column), column.flatten()
    index = int(np.argmax(lengths > 1))
    if lengths.max(initial=0) > 1:
        cell = first.below(label_rows[index])
        raise DataError(
            f"Label {settings.label!r} has {lengths[index]} values in {cell}: every row needs"
            " exactly one label."
        )
    task = settings.label_task
    if pa.types.is_binary(labels.type):
        # A vocabulary of classes is a file with a class in each line.
        has_break = pc.match_substring_regex(labels, "[\r\n]").to_numpy(zero_copy_only=False)
        if has_break.any():
            index = int(np.argmax(has_break))
            cell = first.below(label_rows[index], excerpt(labels[index].as_py()))
            raise DataError(
                f"Label {settings.label!r} is {cell.value!r} in {cell}; expected a class without"
                " line breaks."
            )
    if not task.needs:
        return
    is_number = pa.types.is_floating(labels.type) or pa.types.is_integer(labels.type)
    usable = np.zeros(len(labels), bool)
    if is_number or task.label_kind.is_classification:
        usable = task.valid_labels(labels.to_numpy(zero_copy_only=False))
    if not usable.all():
        index = int(np.argmin(usable))
        cell = first.below(label_rows[index], excerpt(labels[index].as_py()))
        raise unusable_label(settings, cell)


LABEL_KEY = "data.label"


def check_label_column(
    columns: Iterable[str], label: str, file: str = "the data", key: str = LABEL_KEY
) -> None:
    """Raises DataError if the columns of a file do not contain the label."""
    names = sorted(columns)
    if label in names:
        return
    near = difflib.get_close_matches(label, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"set {key} to one of these columns."
    if len(names) == 1 and any(separator in names[0] for separator in ",;\t|"):
        hint = "set the delimiter between the columns by data.csv: {delimiter: ...}."
    raise DataError(
        f"There is no label column {label!r} in {file}; the columns are {show_names(names)}: {hint}"
    )


def unusable_label(
    settings: ExampleGenSettings, cell: Cell, remedy: str = "Correct it"
) -> DataError:
    """Returns the error for a label that the task cannot use."""
    task = settings.label_task
    if find_format([cell.value]) is not None:
        remedy = "It is a date: name another column by data.label"
    other = f", or choose task: {task.alternatives}" if task.alternatives else ""
    return DataError(
        f"Label {settings.label!r} is {cell.value!r} in {cell}, but task:"
        f" {task.kind} needs {task.needs} in every row. {remedy}{other}."
    )


def show_label(value: Any) -> str:
    """Returns a label for a message."""
    return repr(value.decode(errors="backslashreplace")) if isinstance(value, bytes) else str(value)


# The split that a model is trained on, by TFX's convention.
TRAIN_SPLIT = "train"
_MAX_ERRORS = 4
"""The largest unreported difference between a split and its share, in standard errors."""
_MAX_DIFFERENCE = 0.25
"""The largest unreported difference between a split and its share, relative to the share."""


def check_report(
    report: ChunkReport,
    split_names: Sequence[str],
    shares: Sequence[int],
    settings: ExampleGenSettings,
    could_stratify: bool = False,
    min_rows: int = 0,
) -> DataNotes:
    """Checks the sum of all reports.

    Args:
      shares: the number of hash buckets of each split, or an empty sequence if each split has its
        own files.
      could_stratify: whether an error may recommend data.stratify.

    Returns:
      Notes on the data, and the date columns.

    Raises:
      DataError: the label is the only column, a split is empty, labels or weights are missing, the
        classes cannot be learned, or dates have another format than in earlier data.
    """
    if report.columns == {settings.label}:
        raise DataError(
            f"The label {settings.label!r} is the only column of the data, so a model has no"
            " inputs: check data.path and data.label."
        )
    notes = report.files.sentences()
    if not report.rows.total() and notes:
        raise DataError(
            f"No picture can be read: {notes[0]}; replace the broken pictures with complete ones."
        )
    if report.unlabelled_rows:
        notes += _check_unlabelled(report, settings)
    _check_splits(report.rows, split_names, bool(shares), settings.order_by)
    notes += _note_shares(report, split_names, shares, settings)
    if settings.weight:
        _check_weighed(report, split_names, settings.weight)
    if not settings.target.needs_label:
        pass  # Tasks without a label may still have classes.
    elif settings.task.is_classification:
        notes += _check_classes(report.classes, split_names, settings, could_stratify)
    elif names_ids(settings.label):
        _check_is_quantity(report, settings.label)
    elif report.label_bounds is not None and len(set(report.label_bounds)) == 1:
        notes.append(
            f"label {settings.label!r} is {report.label_bounds[0]:g} in every row, so a model"
            " cannot learn from the data: check data.label and the data"
        )
    notes += check_dates(report.dates, settings.known_dates)
    if report.rows.total() < min_rows:
        raise few_rows_error(report.rows.total())
    return DataNotes(notes, find_dates(report.dates))


def _check_is_quantity(report: ChunkReport, label: str) -> None:
    """Raises DataError for a numeric label with the name of an identifier, if whole numbers differ
    in nearly every row.
    """
    counts: Counter[Any] = sum(report.classes.values(), Counter())
    rows = counts.total()
    if rows < _MIN_IDENTIFIERS or len(counts) <= _IDENTIFIER_SHARE * rows:
        return
    if not any(map(_has_fraction, counts)):
        raise identifier_error(label, len(counts), rows)


def _check_unlabelled(report: ChunkReport, settings: ExampleGenSettings) -> list[str]:
    """Returns a note on rows without a label. If they may not be left out, raises DataError."""
    check_label_column(report.columns, settings.label)
    first, rows = report.unlabelled[0], counted(report.unlabelled_rows, "row")
    if settings.unlabelled is Unlabelled.FAIL:
        raise DataError(
            f"Label {settings.label!r} is missing in {rows}, first in {first}: add the labels, or"
            " leave out rows without a label by data: {unlabelled: skip}."
        )
    if not report.rows.total():
        raise DataError(f"Label {settings.label!r} is missing in all {rows}: add the labels.")
    if settings.labels is not None:
        return [f"left out {rows} without a label in {settings.labels.path}, first {first}"]
    return [f"left out {rows} without a label (data.unlabelled: skip), first {first}"]


def _check_weighed(report: ChunkReport, split_names: Sequence[str], weight: str) -> None:
    """Raises DataError for a split in which all weights are 0."""
    weightless = [name for name in split_names if name not in report.weighed]
    if weightless:
        rows = counted(report.rows[weightless[0]], "row")
        raise DataError(
            f"Weight {weight!r} is 0 in all {rows} of split {weightless[0]!r}, so that no row of"
            " the split counts: check data.weight and the data."
        )


def _check_splits(
    rows: Counter[str], split_names: Sequence[str], hash_splits: bool, order_by: str
) -> None:
    empty = [name for name in split_names if not rows[name]]
    if not empty:
        return
    if hash_splits and rows.total() < MIN_ROWS:
        raise few_rows_error(rows.total())
    counts = ", ".join(f"{name} {rows[name]}" for name in split_names)
    correction = "give the split a larger share in data.splits, or add data"
    if not hash_splits:
        correction = "check the split's glob in data.splits"
    elif order_by:
        correction = f"{order_by!r} (data.order_by) has too few different values for the splits"
    raise DataError(f"Split {empty[0]!r} has no rows (rows per split: {counts}): {correction}.")


def _note_shares(
    report: ChunkReport,
    split_names: Sequence[str],
    shares: Sequence[int],
    settings: ExampleGenSettings,
) -> list[str]:
    """Returns a note on the split that differs most from its share, if it differs significantly."""
    rows, differences = report.rows.total(), []
    for name, share in zip(split_names, shares, strict=bool(shares)):
        expected, actual = share / sum(shares), report.rows[name] / rows
        by_chance = _MAX_ERRORS * math.sqrt(expected * (1 - expected) / rows)
        if abs(actual - expected) > max(by_chance, _MAX_DIFFERENCE * expected):
            differences.append((abs(actual - expected) / expected, name, actual, expected))
    if not differences:
        return []
    _, name, actual, expected = max(differences)
    together = "are in the same split"
    if settings.order_by:
        reason = f"rows with equal values of {settings.order_by!r} (data.order_by) {together}"
    elif settings.split_by:
        reason = f"rows with equal values of {settings.split_by!r} (data.split_by) {together}"
    elif settings.stratify:
        reason = f"a class with one row is in {TRAIN_SPLIT!r}, and equal rows {together}"
    else:
        reason = f"equal rows {together}"
    return [
        f"split {name!r} has {actual:.1%} of the rows, instead of {expected:.0%} as in data.splits:"
        f" {reason}"
    ]


def _check_classes(
    classes: dict[str, Counter[Any]],
    split_names: Sequence[str],
    settings: ExampleGenSettings,
    could_stratify: bool,
) -> list[str]:
    """Returns notes on classes without examples in a split. Raises DataError if the classes cannot
    be learned.
    """
    total: Counter[Any] = sum(classes.values(), Counter())
    shown = ", ".join(show_label(value) for value in sorted(total)[:5])
    shown += " and more" if len(total) > 5 else ""
    if len(total) == 1:
        raise constant_label_error(settings.label, shown)
    _check_are_classes(total, settings)
    max_classes = settings.label_task.max_classes
    notes = note_similar_classes(settings.label, total)
    if max_classes is not None and len(total) > max_classes:
        task = "regression" if any(_has_fraction(value) for value in total) else "multiclass"
        similar = f" ({notes[0]})" if notes else ""
        raise DataError(
            f"Label {settings.label!r} has {counted(len(total), 'class')} ({shown}), but task:"
            f" binary needs two: choose task: {task}, or check data.label{similar}."
        )
    if settings.target.kind == "multiclass" and len(total) == 2:
        notes.append(
            f"label {settings.label!r} has 2 classes ({shown}): with task: binary, the run also"
            " measures the area under the ROC curve, precision and recall"
        )
    remedy = "add examples of the class, or leave the class out"
    if could_stratify:
        remedy = (
            "write data: {stratify: true}, so that train has all classes, or add examples of the"
            " class"
        )
    train = TRAIN_SPLIT if TRAIN_SPLIT in split_names else split_names[0]
    for split in split_names:
        unseen = sorted(value for value in classes[split] if value not in classes[train])
        if unseen:
            value = unseen[0]
            raise DataError(
                f"Class {show_label(value)} of label {settings.label!r} occurs"
                f" {counted(classes[split][value], 'time')} in split {split!r} but never in"
                f" {train!r} (classes that {train!r} lacks: {len(unseen)}): {remedy}."
            )
        absent = sorted(value for value in classes[train] if value not in classes[split])
        if absent:
            notes.append(
                f"split {split!r} has no example of {counted(len(absent), 'class')} that {train!r}"
                f" has, such as {show_label(absent[0])}"
            )
    return notes


def note_similar_classes(label: str, classes: Iterable[Any]) -> list[str]:
    """Returns a note on classes that differ only in case or spaces, or an empty list.

    Args:
      classes: the classes, of which only bytes are compared.
    """
    groups: dict[str, list[str]] = {}
    for value in sorted(value for value in classes if isinstance(value, bytes)):
        text = value.decode(errors="replace")
        groups.setdefault("".join(text.split()).casefold(), []).append(text)
    similar = next((names for names in groups.values() if len(names) > 1), None)
    if similar is None:
        return []
    return [
        f"classes {enumerate_names(map(repr, similar), 'and')} of label {label!r} differ only in"
        f" case or spaces: if they are the same class, write {similar[-1]!r} in each of these rows"
    ]


_MAX_NUMBERS = 100_000
"""The number of different numeric labels of a chunk after which no further ones are counted."""
_MIN_IDENTIFIERS = 50
"""The minimum number of rows in which a different label each is an identifier."""
_MIN_DATES = 20
"""The minimum number of different dates that are no classes."""
_ROWS_PER_DATE = 5
"""The average number of rows per date from which dates may be classes, such as months."""


def _check_are_classes(total: Counter[Any], settings: ExampleGenSettings) -> None:
    """Raises DataError for labels that are identifiers or dates, as few classes occur again."""
    if settings.format_spec.holds_images or settings.label_task.max_classes is not None:
        return
    rows, distinct = total.total(), len(total)
    words = [value.decode(errors="replace") for value in total if isinstance(value, bytes)]
    are_rare = distinct * _ROWS_PER_DATE > rows
    if are_rare and len(words) == distinct >= _MIN_DATES and find_format(words) is not None:
        raise date_label_error(settings.label, distinct, repr(words[0]))
    if rows >= _MIN_IDENTIFIERS and distinct > _IDENTIFIER_SHARE * rows:
        raise identifier_error(settings.label, distinct, rows)


_IDENTIFIER_SHARE = 0.95
"""The share of different labels above which the labels are identifiers."""


def identifier_error(label: str, distinct: int, rows: int, key: str = LABEL_KEY) -> DataError:
    """Returns the error for a label that differs in nearly every row.

    Args:
      key: the config key or the option that names the label.
    """
    return DataError(
        f"Label {label!r} has {distinct:,} different values in {rows:,} rows, as an identifier has:"
        f" name another column by {key}."
    )


def date_label_error(label: str, distinct: int, shown: str, key: str = LABEL_KEY) -> DataError:
    """Returns the error for a label of dates, of which `shown` is one."""
    return DataError(
        f"Label {label!r} has {counted(distinct, 'date')}, such as {shown}, which are no classes:"
        f" name another column by {key}; to evaluate on the newest rows, write data:"
        f" {{order_by: {label}}}."
    )


def constant_label_error(label: str, shown: str, key: str = LABEL_KEY) -> DataError:
    """Returns the error for a label whose only value is `shown`."""
    return DataError(
        f"Label {label!r} is {shown} in every row: a classifier needs two classes or more; check"
        f" {key} and the data."
    )


def few_rows_error(rows: int) -> DataError:
    """Returns the error for data with too few rows for a split."""
    return DataError(
        f"The data has only {counted(rows, 'row')}, too few to train and to evaluate a model: add"
        f" rows ({MIN_ROWS} at the very least, and some hundred for a useful model), or correct"
        " data.path."
    )


MIN_ROWS = 10
"""The minimum number of rows of data that is split at random."""


def _has_fraction(value: Any) -> bool:
    return isinstance(value, float) and not value.is_integer()
