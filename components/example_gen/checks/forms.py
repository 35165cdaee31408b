"""Whether the values of a column are written as the type that the config declares can read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_types import holds_bytes
from components.example_gen.columns.encoded import Cell, list_lengths, shown
from components.example_gen.columns.seen import are_placeholders
from trainer_module.errors import DataError, enumerate_names
from trainer_module.features.base import BaseFeature

# Of a value, and of the names of forms, in a message.
_SHOWN_FORMS = 3


@dataclass(frozen=True)
class Written:
    """In which forms all values of a column are written."""

    forms: tuple[str, ...]
    first: Cell
    """The first value."""

    def merge(self, name: str, other: Written) -> Written:
        """The same for the rows of both; DataError if they have no form in common."""
        common = tuple(form for form in self.forms if form in other.forms)
        if not common:
            raise _two_ways(name, self, other)
        return replace(self, forms=common)


def merge_written(one: Mapping[str, Written], other: Mapping[str, Written]) -> dict[str, Written]:
    """Both by column; DataError if the values of one column are written in two ways."""
    both = {name: one[name].merge(name, other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def find_written(
    rows: pa.RecordBatch, first: Cell, features: Mapping[str, BaseFeature]
) -> dict[str, Written]:
    """The forms of each column that has some, and a value in the batch.

    Args:
      rows: list columns of int64, float32 or binary.
      first: where the batch begins.
      features: by column, what the config declares.

    Raises:
      DataError: names the first row whose value cannot be read, or is written in another way than
        those before it.
    """
    return {
        name: written
        for name in features.keys() & set(rows.schema.names)
        for written in _forms_of(name, rows.column(name), first, features[name])
    }


def _forms_of(name: str, column: pa.Array, first: Cell, feature: BaseFeature) -> Iterator[Written]:
    texts, row_of = texts_of(column)
    if not len(texts):
        return
    names = list(feature.forms())
    every = np.stack([matches(texts, pattern) for pattern in feature.forms().values()])
    # A word for a missing value goes with every form, unless it is one itself.
    every |= ~every.any(axis=0) & are_placeholders(texts).to_numpy(zero_copy_only=False)
    # Whether each value, [values], is written in a form.
    fits = dict(zip(names, every, strict=True))

    def written(place: int) -> Written:
        value = shown(texts[place].as_py())
        forms = tuple(form for form, fit in fits.items() if fit[place])
        return Written(forms, Cell(first.file, first.row + int(row_of[place]), value))

    if (place := _first_misfit(every)) is not None:
        raise _unreadable(name, written(place).first, feature)
    if (place := _first_misfit(np.logical_and.accumulate(every, axis=1))) is not None:
        raise _two_ways(name, written(0), written(place))
    forms = tuple(form for form, fit in fits.items() if fit.all())
    yield replace(written(0), forms=forms)


def _first_misfit(fits: np.ndarray) -> int | None:
    """The first value of no form, of whether each form [forms, values] has it."""
    misfits = ~fits.any(axis=0)
    return int(np.argmax(misfits)) if misfits.any() else None


def matches(texts: pa.StringArray, pattern: str) -> np.ndarray:
    """Whether each text is as the pattern has it, from end to end."""
    found = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def texts_of(column: pa.Array) -> tuple[pa.StringArray, np.ndarray]:
    """The values that are there, as text, and the row of each; a whole number has no point."""
    if pa.types.is_null(column.type):
        return pa.array([], pa.string()), np.zeros(0, np.int64)
    row_of = np.repeat(np.arange(len(column)), list_lengths(column))
    values = column.flatten()
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy().astype(np.float64)
        texts = pa.array([_show_number(n) for n in numbers], pa.string())
    else:
        is_text = holds_bytes(values.type)
        texts = values.view(pa.string()) if is_text else values.cast(pa.string())
    there = pc.not_equal(pc.ascii_trim_whitespace(texts), "")
    return texts.filter(there), row_of[np.asarray(there.to_numpy(zero_copy_only=False), bool)]


def _show_number(number: float) -> str:
    if np.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() else str(number)


def _unreadable(name: str, cell: Cell, feature: BaseFeature) -> DataError:
    forms = list(feature.forms())
    right = enumerate_names(forms[:_SHOWN_FORMS], "or")
    more = f" or {len(forms) - _SHOWN_FORMS} other ways" if len(forms) > _SHOWN_FORMS else ""
    return DataError(
        f"Column {name!r} is {cell.value!r} in row {cell.row} of {cell.file}, which is no"
        f" {feature.type}: right is {right}{more}. Correct it, leave it empty where it is missing,"
        f" or declare what it is by features: {{{name}: {{type: ...}}}}."
    )


def _two_ways(name: str, one: Written, other: Written) -> DataError:
    first, second = one.first, other.first
    place = f"in row {second.row} of {second.file}"
    return DataError(
        f"Column {name!r} is written in two ways: {first.value!r} ({' or '.join(one.forms)}) in row"
        f" {first.row} of {first.file}, but {second.value!r} ({' or '.join(other.forms)}) {place}:"
        " write all of them in one."
    )
