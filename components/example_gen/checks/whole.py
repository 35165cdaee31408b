"""The data as a whole: its splits and classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from components.example_gen.checks.columns import check_label_column
from components.example_gen.checks.dates import check_dates, find_dates
from components.example_gen.checks.rows import ChunkReport, show_label
from components.example_gen.formats import ExampleGenSettings, Unlabelled
from components.example_gen.notes import DataNotes
from trainer_module.errors import DataError, counted

# The split that a model is trained on, by TFX's convention.
TRAIN_SPLIT = "train"
_CHANCE = 4
"""Standard errors that a split is off its share by chance, at the most."""
_MUCH = 0.25
"""Of its share that a split may be off without a word."""


def check_report(
    report: ChunkReport,
    split_names: Sequence[str],
    shares: Sequence[int],
    settings: ExampleGenSettings,
    could_stratify: bool = False,
) -> DataNotes:
    """Judges the data as a whole.

    Args:
      report: the sum over all chunks.
      split_names: the splits that are to be.
      shares: of each split; empty where the splits are inputs of their own.
      settings: label and task.
      could_stratify: whether data.stratify is a way out.

    Returns:
      What is to be known of data that can be used.

    Raises:
      DataError: there is only a label, a split is empty, labels are missing, the classes cannot
        be learned, or dates are written in another way than earlier ones.
    """
    if report.columns == {settings.label}:
        raise DataError(
            f"The label {settings.label!r} is the data's only column: there is nothing to predict"
            " it from; check data.path and data.label."
        )
    notes = report.files.sentences()
    if not report.rows.total() and notes:
        raise DataError(f"No picture can be read: {notes[0]}; replace them with complete ones.")
    if report.unlabelled_rows:
        notes += _check_unlabelled(report, settings)
    _check_splits(report.rows, split_names, bool(shares), settings.order_by)
    notes += _note_shares(report, split_names, shares, settings)
    if settings.weight:
        _check_weighed(report, split_names, settings.weight)
    if not settings.target.needs_label:
        pass  # Classes tell such rows apart where there are some.
    elif settings.task.is_classification:
        notes += _check_classes(report.classes, split_names, settings, could_stratify)
    elif report.label_bounds is not None and len(set(report.label_bounds)) == 1:
        notes.append(
            f"label {settings.label!r} is {report.label_bounds[0]:g} in every row: there is nothing"
            " to learn; check data.label and the data"
        )
    notes += check_dates(report.dates, settings.known_dates)
    return DataNotes(notes, find_dates(report.dates))


def _check_unlabelled(report: ChunkReport, settings: ExampleGenSettings) -> list[str]:
    """Refuses rows without a label unless they may be left out, which is said then."""
    check_label_column(report.columns, settings.label)
    cell, rows = report.unlabelled[0], counted(report.unlabelled_rows, "row")
    place = f"row {cell.row} of {cell.file}"
    if settings.unlabelled is Unlabelled.FAIL:
        raise DataError(
            f"Label {settings.label!r} is missing in {rows}, first in {place}: fill it in, or leave"
            " such rows out by data: {unlabelled: skip}."
        )
    if not report.rows.total():
        raise DataError(f"Label {settings.label!r} is missing in all {rows}: fill it in.")
    if settings.labels is not None:
        return [f"{rows} have no label in {settings.labels.path}, and are left out, first {place}"]
    return [f"{rows} without a label are left out (data.unlabelled: skip), first {place}"]


def _check_weighed(report: ChunkReport, split_names: Sequence[str], weight: str) -> None:
    """Refuses a split of which nothing could be learnt, or measured."""
    idle = [name for name in split_names if name not in report.weighed]
    if idle:
        rows = counted(report.rows[idle[0]], "row")
        raise DataError(
            f"Weight {weight!r} is 0 in all {rows} of split {idle[0]!r}, so that none of them"
            " would count: check data.weight and the data."
        )


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


def _note_shares(
    report: ChunkReport,
    split_names: Sequence[str],
    shares: Sequence[int],
    settings: ExampleGenSettings,
) -> list[str]:
    """Notes the split that is furthest from its share, where chance does not explain it."""
    rows, notes = report.rows.total(), []
    for name, share in zip(split_names, shares, strict=bool(shares)):
        asked, got = share / sum(shares), report.rows[name] / rows
        by_chance = _CHANCE * math.sqrt(asked * (1 - asked) / rows)
        if abs(got - asked) > max(by_chance, _MUCH * asked):
            notes.append((abs(got - asked) / asked, name, got, asked))
    if not notes:
        return []
    _, name, got, asked = max(notes)
    most = f"as many as {report.equal.most:,} rows"
    if settings.order_by:
        why = f"rows with one value of {settings.order_by!r} (data.order_by) stay together"
    elif settings.split_by:
        why = f"{most} have one value of {settings.split_by!r} (data.split_by), and stay together"
    elif settings.stratify:
        why = f"a class of one row is in {TRAIN_SPLIT!r}, and equal rows stay together"
    else:
        why = f"{most} are equal, and stay together"
    return [
        f"split {name!r} has {got:.1%} of the rows, where data.splits asks for {asked:.0%}: {why}"
    ]


def _check_classes(
    classes: dict[str, Counter[Any]],
    split_names: Sequence[str],
    settings: ExampleGenSettings,
    could_stratify: bool,
) -> list[str]:
    """Refuses classes that cannot be learned, and returns notes on those that are not measured."""
    total: Counter[Any] = sum(classes.values(), Counter())
    shown = ", ".join(show_label(value) for value in sorted(total)[:5])
    shown += " and more" if len(total) > 5 else ""
    if len(total) == 1:
        raise DataError(
            f"Label {settings.label!r} is {shown} in every row: a classifier needs two classes or"
            " more; check data.label and the data."
        )
    most = settings.label_task.most_classes
    if most is not None and len(total) > most:
        other = "regression" if any(_has_fraction(value) for value in total) else "multiclass"
        raise DataError(
            f"Label {settings.label!r} has {counted(len(total), 'class')} ({shown}), but task:"
            f" binary needs two: choose task: {other}, or check data.label."
        )
    notes = []
    if settings.target.kind == "multiclass" and len(total) == 2:
        notes.append(
            f"label {settings.label!r} has 2 classes ({shown}): with task: binary the area under"
            " the ROC curve, precision and recall are measured too"
        )
    way_out = "add examples of it, or leave it out"
    if could_stratify:
        way_out = "write data: {stratify: true}, which trains on each class, or add examples of it"
    train = TRAIN_SPLIT if TRAIN_SPLIT in split_names else split_names[0]
    for split in split_names:
        unseen = sorted(value for value in classes[split] if value not in classes[train])
        if unseen:
            value = unseen[0]
            raise DataError(
                f"Class {show_label(value)} of label {settings.label!r} occurs"
                f" {counted(classes[split][value], 'time')} in split {split!r} but never in"
                f" {train!r} (such classes: {len(unseen)}): {way_out}."
            )
        absent = sorted(value for value in classes[train] if value not in classes[split])
        if absent:
            notes.append(
                f"split {split!r} has no example of {counted(len(absent), 'class')} that {train!r}"
                f" has, such as {show_label(absent[0])}"
            )
    return notes


def _has_fraction(value: Any) -> bool:
    return isinstance(value, float) and not value.is_integer()
