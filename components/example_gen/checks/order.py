"""The values that `data.order_by` orders rows by, read without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from components.example_gen.checks.columns import show_names
from components.example_gen.columns.encoded import Cell, first_values, shown
from trainer_module.data.order import ordered_keys, parse_times
from trainer_module.errors import DataError


@dataclass(frozen=True)
class Order:
    """What some rows are ordered by."""

    keys: np.ndarray
    """[rows], int64 or float: numbers, or microseconds since 1970."""
    missing: np.ndarray
    """[rows] bool: which have no value, and count as the oldest."""


def read_order(rows: pa.RecordBatch, first: Cell, name: str) -> Order:
    """Reads the column that rows are ordered by: numbers, or dates and times as texts.

    Args:
      rows: list columns of int64, float32 or binary.
      first: where the batch begins.
      name: of the column.

    Raises:
      DataError: a value cannot be ordered, or there is no such column.
    """
    if name not in rows.schema.names:
        raise DataError(
            f"Splits are to be made by the order of {name!r} (data.order_by), but the data has no"
            f" such column; it has {show_names(rows.schema.names)}."
        )
    values = first_values(rows.column(name))
    try:
        keys = ordered_keys(values)
    except pa.ArrowInvalid as error:
        row, value = _first_without_time(values)
        raise DataError(
            f"Column {name!r} is {shown(value)!r} in row {first.row + row} of {first.file}, but"
            " data.order_by needs numbers, or dates and times such as 2026-01-31 or"
            " 2026-01-31T18:30:00Z in every row."
        ) from error
    return Order(keys, values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))


def _first_without_time(values: pa.Array) -> tuple[int, bytes]:
    """The place and the value of the first text that is no date or time."""
    for row in range(len(values)):
        try:
            parse_times(values.slice(row, 1))
        except pa.ArrowInvalid:
            return row, values[row].as_py()
    raise AssertionError("all of them are dates or times")
