"""The conversion of encoded columns to the inputs of an exported model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import (
    Cell,
    find_infinite,
    first_values,
    list_lengths,
)
from trainer_module.errors import DataError, counted
from trainer_module.export.interface import ModelInterface, RawColumn

MISSING: dict[str, object] = {"string": b"", "float32": np.nan, "float64": np.nan}
"""The value that marks a missing value, by dtype. In an int64 column no value can be missing."""


def to_request(
    rows: pa.RecordBatch, first: Cell, interface: ModelInterface
) -> dict[str, np.ndarray]:
    """Returns the inputs of the signature `serving_raw` for rows.

    Args:
      rows: encoded columns, which include all columns of the model.

    Returns:
      Arrays by request name, of the shape [rows] or [rows, values]. Bytes are objects.

    Raises:
      DataError: the model cannot take a row. The message names the first row with the problem.
    """
    return {c.request: _to_array(rows.column(c.name), c, first) for c in interface.columns}


def _to_array(column: pa.Array, raw_column: RawColumn, first: Cell) -> np.ndarray:
    lengths = list_lengths(column)
    _check_finite(column, raw_column, first)
    if raw_column.width is not None:
        _check_lengths(lengths, raw_column, raw_column.width, first)
    if raw_column.width == 1:
        return _to_numpy(first_values(column), raw_column.dtype)
    if pa.types.is_null(column.type) or not len(column):
        values = np.empty(0)
    else:
        values = _to_numpy(column.flatten(), raw_column.dtype)
    shape = len(lengths), raw_column.width or max(1, int(lengths.max(initial=0)))
    dense = np.full(shape, MISSING.get(raw_column.dtype, 0), numpy_dtype(raw_column.dtype))
    dense[np.arange(shape[1]) < lengths[:, np.newaxis]] = values
    return dense


def _check_finite(column: pa.Array, raw_column: RawColumn, first: Cell) -> None:
    """Raises DataError for infinite numbers, which training data may not contain either."""
    infinite = find_infinite(column)
    if infinite is not None:
        index, number = infinite
        raise DataError(
            f"Column {raw_column.name!r} is {number} in row {first.row + index} of {first.file}"
            " (the largest float32 is 3.4e38): write a number, or leave a missing value empty."
        )


def _check_lengths(lengths: np.ndarray, raw_column: RawColumn, width: int, first: Cell) -> None:
    may_be_missing = width == 1 and raw_column.dtype in MISSING
    wrong = lengths > 1 if may_be_missing else lengths != width
    if wrong.any():
        index = int(np.argmax(wrong))
        raise DataError(
            f"Column {raw_column.name!r} has {counted(int(lengths[index]), 'value')} in row"
            f" {first.row + index} of {first.file}, expected"
            f" {counted(width, 'value')}."
        )


def _to_numpy(values: pa.Array, dtype: str) -> np.ndarray:
    if dtype == "string":
        if pa.types.is_null(values.type):
            return np.full(len(values), b"", object)
        filled = values.fill_null(b"") if values.null_count else values
        return filled.to_numpy(zero_copy_only=False)
    target = pa.from_numpy_dtype(np.dtype(dtype))
    # Nulls in float columns become NaN; nullable integers are sent as float64.
    return values.cast(target, safe=False).to_numpy(zero_copy_only=False).astype(dtype, copy=False)


def numpy_dtype(dtype: str) -> type | str:
    """Returns the NumPy dtype of a model's dtype. Strings are bytes, of NumPy's dtype object."""
    return object if dtype == "string" else dtype
