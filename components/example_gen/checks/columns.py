"""What a survey found in columns: whether the label is there, and numbers are numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from components.example_gen.checks.rows import unusable_label
from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.columns.seen import SeenColumn, is_comma_number
from components.example_gen.formats import ExampleGenSettings
from trainer_module.errors import DataError

# Of columns in a message.
_SHOWN_NAMES = 20


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


def check_column(name: str, column: SeenColumn, settings: ExampleGenSettings) -> None:
    """Raises DataError where a column of numbers holds some text, or a regression label does."""
    cell = column.first_text
    if name == settings.label:
        # A class may be a number or a name.
        if (
            not settings.task.is_classification
            and column.kind is ColumnKind.BYTES
            and cell is not None
        ):
            raise unusable_label(settings, cell, _way_out(column, settings))
        return
    if cell is None or column.kind is not ColumnKind.BYTES or name in settings.mixed_columns:
        return
    if column.are_amounts and settings.are_numbers(name):
        raise DataError(
            f"Column {name!r} is declared numeric, but {cell.value!r} in row {cell.row} of"
            f" {cell.file} is text (such values: {column.texts}). Write it as a plain number, or"
            f" read it by `features: {{{name}: {{type: numeric, written: point, unit: $}}}}`,"
            " with the unit that stands beside the numbers if there is one."
        )
    if not column.is_mixed:
        return
    raise DataError(
        f"Column {name!r} holds {column.numbers} numbers, but {cell.value!r} in row {cell.row} of"
        f" {cell.file} is not a number (such values: {column.texts}). {_way_out(column, settings)},"
        f" or accept numbers and text with `features: {{{name}: {{type: categorical}}}}`."
    )


def _way_out(column: SeenColumn, settings: ExampleGenSettings) -> str:
    """What to do about text among numbers, by what the first one is."""
    assert column.first_text is not None  # noqa: S101 - whoever asks has seen it
    value = column.first_text.value
    if settings.format == "csv" and is_comma_number(value):
        return 'If its comma is a decimal one, write `data.csv: {decimal: ","}`'
    return "Correct it (an empty cell means missing)"
