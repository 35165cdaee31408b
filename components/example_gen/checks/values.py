"""Checks of a column's values against the config: notations, numbers, weights and row order."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_types import holds_bytes
from components.example_gen.columns.encoded import (
    Cell,
    excerpt,
    first_values,
    list_lengths,
    rows_of,
    show_names,
    values_of,
)
from components.example_gen.columns.type_inference import NUMBER, are_placeholders
from trainer_module.data.order import ordered_keys, parse_times
from trainer_module.errors import DataError, as_key, enumerate_names
from trainer_module.features.base import BaseFeature

# The number of notations that a message names.
_SHOWN_FORMS = 3


@dataclass(frozen=True)
class Notations:
    """The notations that fit all values of a column."""

    forms: tuple[str, ...]
    first: Cell
    """The first value."""

    def merge(self, name: str, other: Notations) -> Notations:
        """Returns the notations that fit the values of both columns.

        Raises:
          DataError: no notation fits all values.
        """
        common = tuple(form for form in self.forms if form in other.forms)
        if not common:
            raise _two_notations_error(name, self, other)
        return replace(self, forms=common)


def merge_notations(
    one: Mapping[str, Notations], other: Mapping[str, Notations]
) -> dict[str, Notations]:
    """Returns the merged notations by column. If a column has two notations, raises DataError."""
    both = {name: one[name].merge(name, other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def find_notations(
    rows: pa.RecordBatch, first: Cell, features: Mapping[str, BaseFeature]
) -> dict[str, Notations]:
    """Returns the notations of each column with values and a type that allows several notations.

    Raises:
      DataError: a value cannot be read, or has another notation than the values before. The message
        names the first such row.
    """
    return {
        name: notations
        for name in features.keys() & set(rows.schema.names)
        for notations in _notations_of(name, rows.column(name), first, features[name])
    }


def _notations_of(
    name: str, column: pa.Array, first: Cell, feature: BaseFeature
) -> Iterator[Notations]:
    texts, text_rows = texts_of(column)
    if not len(texts):
        return
    names = list(feature.forms())
    are_matches = np.stack([matches(texts, pattern) for pattern in feature.forms().values()])
    # A placeholder such as NA that matches no notation is valid in all of them.
    are_matches |= ~are_matches.any(axis=0) & are_placeholders(texts).to_numpy(zero_copy_only=False)
    # Each notation has a row that contains whether each value matches, [values].
    fits = dict(zip(names, are_matches, strict=True))

    def notations_at(index: int) -> Notations:
        value = excerpt(texts[index].as_py())
        forms = tuple(form for form, fit in fits.items() if fit[index])
        return Notations(forms, first.below(text_rows[index], value))

    if (index := _first_misfit(are_matches)) is not None:
        raise _unreadable_error(name, notations_at(index).first, feature)
    if (index := _first_misfit(np.logical_and.accumulate(are_matches, axis=1))) is not None:
        raise _two_notations_error(name, notations_at(0), notations_at(index))
    forms = tuple(form for form, fit in fits.items() if fit.all())
    yield replace(notations_at(0), forms=forms)


def _first_misfit(fits: np.ndarray) -> int | None:
    """Returns the index of the first value without a notation, or None.

    Args:
      fits: whether each value fits each notation, [notations, values] bool.
    """
    misfits = ~fits.any(axis=0)
    return int(np.argmax(misfits)) if misfits.any() else None


def matches(texts: pa.StringArray, pattern: str) -> np.ndarray:
    """Returns whether the complete string matches the pattern, for each string."""
    is_match = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
    return np.asarray(is_match.to_numpy(zero_copy_only=False), bool)


def texts_of(column: pa.Array) -> tuple[pa.StringArray, np.ndarray]:
    """Returns the values of a column of lists as strings, and the row of each string.

    Empty values are left out. Whole numbers are written without a decimal point.
    """
    values, value_rows = values_of(column), rows_of(column)
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy().astype(np.float64)
        texts = pa.array([_show_number(n) for n in numbers], pa.string())
    else:
        texts = values.view(pa.string()) if holds_bytes(values.type) else values.cast(pa.string())
    has_text = pc.not_equal(pc.ascii_trim_whitespace(texts), "")
    is_kept = np.asarray(has_text.to_numpy(zero_copy_only=False), bool)
    return texts.filter(has_text), value_rows[is_kept]


def _show_number(number: float) -> str:
    if np.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() else str(number)


def _unreadable_error(name: str, cell: Cell, feature: BaseFeature) -> DataError:
    forms = list(feature.forms())
    expected = enumerate_names(forms[:_SHOWN_FORMS], "or")
    more = f" or {len(forms) - _SHOWN_FORMS} other notations" if len(forms) > _SHOWN_FORMS else ""
    return DataError(
        f"Column {name!r} is {cell.value!r} in {cell}, which is not of the type {feature.type}:"
        f" expected {expected}{more}. Correct the value, leave the cell empty if the value is"
        f" missing, or declare another type by features: {{{as_key(name)}: {{type: ...}}}}."
    )


def _two_notations_error(name: str, one: Notations, other: Notations) -> DataError:
    first, second = one.first, other.first
    return DataError(
        f"Column {name!r} has two notations: {first.value!r} ({' or '.join(one.forms)}) in"
        f" {first}, but {second.value!r} ({' or '.join(other.forms)}) in {second}: write all"
        " values in the same notation."
    )


def check_numbers(rows: pa.RecordBatch, first: Cell, names: Iterable[str]) -> None:
    """Checks that columns that are declared numeric do not hold text.

    Raises:
      DataError: a column holds text. The message names the first row whose text is not a number, or
        the first row with a value.
    """
    columns = set(rows.schema.names)
    for name in (name for name in names if name in columns):
        column = rows.column(name)
        values = values_of(column)
        if holds_bytes(values.type) and len(values):
            raise _not_number_error(name, column, values, first)


def _not_number_error(name: str, column: pa.Array, values: pa.Array, first: Cell) -> DataError:
    texts = pc.ascii_trim_whitespace(values.view(pa.string()))
    is_number = pc.match_substring_regex(texts, NUMBER).to_numpy(zero_copy_only=False)
    index = int(np.argmin(is_number))
    cell = first.below(rows_of(column)[index], excerpt(values[index].as_py()))
    problem = "a number stored as text" if is_number[index] else "not a number"
    return DataError(
        f"Column {name!r} is {cell.value!r} in {cell}, which is {problem}, but features.{name}"
        " declares numbers: correct the value, leave the cell empty if the value is missing, or"
        f" write features: {{{as_key(name)}: {{type: categorical}}}} (or ignore)."
    )


def no_value_error(name: str) -> DataError:
    """Returns the error for a column that is declared numeric and is empty in all rows."""
    return DataError(
        f"Column {name!r} has no value in any row, but features.{name} declares numbers: add the"
        f" values, or write features: {{{as_key(name)}: {{type: ignore}}}}."
    )


def check_weights(rows: pa.RecordBatch, first: Cell, name: str) -> np.ndarray:
    """Checks and returns the weights of a batch.

    Returns:
      The weights, [rows] float64.

    Raises:
      DataError: the column does not exist, or a weight is missing, negative, infinite or not a
        number. The message names the first such row.
    """
    if name not in rows.schema.names:
        near = difflib.get_close_matches(name, rows.schema.names, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else "set data.weight to an existing column, or remove the key."
        )
        raise DataError(f"data.weight is {name!r}, but there is no such column; {hint}")
    column = rows.column(name)
    lengths = list_lengths(column)
    usable = lengths == 1
    if usable.all():
        values = column.flatten()
        is_number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
        numbers = values.to_numpy().astype(np.float64) if is_number else np.full(len(rows), -1.0)
        usable = np.isfinite(numbers) & (numbers >= 0)
    if usable.all():
        return numbers
    row = int(np.argmin(usable))
    weight = ", ".join(map(excerpt, column[row].as_py() or [])) or "missing"
    raise DataError(
        f"Weight {name!r} is {weight} in {first.below(row)}: expected a number of 0 or more in"
        " every row. A row with the weight 0 does not count."
    )


@dataclass(frozen=True)
class Order:
    """The keys by which the rows of a batch are ordered."""

    keys: np.ndarray
    """The numbers, or the microseconds since 1970, [rows] int64 or float."""
    missing: np.ndarray
    """Whether a row has no value, so that it counts as the oldest, [rows] bool."""


def read_order(rows: pa.RecordBatch, first: Cell, name: str) -> Order:
    """Returns the keys in the column that orders the rows: numbers, or dates and times as text.

    Raises:
      DataError: there is no such column, or a value is not a number, date or time.
    """
    if name not in rows.schema.names:
        raise DataError(
            f"data.order_by: the data has no column {name!r}; it has"
            f" {show_names(rows.schema.names)}."
        )
    values = first_values(rows.column(name))
    try:
        keys = ordered_keys(values)
    except pa.ArrowInvalid as error:
        row, value = _first_without_time(values)
        raise DataError(
            f"Column {name!r} is {excerpt(value)!r} in {first.below(row)}, but"
            " data.order_by needs numbers, or dates and times such as 2026-01-31 or"
            " 2026-01-31T18:30:00Z in every row."
        ) from error
    return Order(keys, values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))


def _first_without_time(values: pa.Array) -> tuple[int, bytes]:
    """Returns the row and the value of the first text that is not a date or time."""
    for row in range(len(values)):
        try:
            parse_times(values.slice(row, 1))
        except pa.ArrowInvalid:
            return row, values[row].as_py()
    raise AssertionError("all values are dates or times")
