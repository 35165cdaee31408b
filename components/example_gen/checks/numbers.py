"""Whether columns that the config declares to be numbers hold any."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_types import holds_bytes
from components.example_gen.columns.encoded import Cell, list_lengths, shown
from components.example_gen.columns.seen import NUMBER
from trainer_module.errors import DataError


def check_numbers(rows: pa.RecordBatch, first: Cell, names: Iterable[str]) -> None:
    """Refuses a batch in which a column that is declared numeric is one of text.

    Args:
      rows: list columns of int64, float32 or binary.
      first: where the batch begins.
      names: the columns that are declared numeric.

    Raises:
      DataError: names the first row whose value is no number, or the first row with a value if all
        of them are numbers, written as text.
    """
    there = set(rows.schema.names)
    for name in names:
        if name not in there:
            continue
        column = rows.column(name)
        values = pa.nulls(0) if pa.types.is_null(column.type) else column.flatten()
        is_text = holds_bytes(values.type)
        if is_text and len(values):
            raise _no_number(name, column, values, first)


def _no_number(name: str, column: pa.Array, values: pa.Array, first: Cell) -> DataError:
    texts = pc.ascii_trim_whitespace(values.view(pa.string()))
    is_number = pc.match_substring_regex(texts, NUMBER).to_numpy(zero_copy_only=False)
    place = int(np.argmin(is_number))
    row = first.row + int(np.repeat(np.arange(len(column)), list_lengths(column))[place])
    value = shown(values[place].as_py())
    what = "a number that is kept as text" if is_number[place] else "no number"
    return DataError(
        f"Column {name!r} is {value!r} in row {row} of {first.file}, which is {what}, but"
        f" features.{name} says numeric: correct it, leave it empty where it is missing, or write"
        f" features: {{{name}: {{type: categorical}}}} (or ignore)."
    )


def no_value_error(name: str) -> DataError:
    """The error for a column that is declared numeric and has no value anywhere."""
    return DataError(
        f"Column {name!r} has no value in any row, but features.{name} says numeric: fill it in, or"
        f" write features: {{{name}: {{type: ignore}}}}."
    )
