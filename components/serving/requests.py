"""Encoded columns, as ExampleGen's sources read them, to the tensors of a request."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import (
    Cell,
    ColumnKind,
    find_infinite,
    first_values,
    list_lengths,
)
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface, RawColumn

MISSING: dict[str, object] = {"string": b"", "float32": np.nan, "float64": np.nan}
"""What stands for a missing value, by dtype; int64 has none."""


def kind_of_column(dtype: str, is_whole: bool) -> ColumnKind:
    """How a column is read that a model takes as a dtype."""
    if dtype == "string":
        return ColumnKind.BYTES
    return ColumnKind.INT if is_whole else ColumnKind.FLOAT


def to_request(
    rows: pa.RecordBatch, first: Cell, interface: ModelInterface
) -> dict[str, np.ndarray]:
    """What the signature `serving_raw` takes for rows.

    Args:
      rows: encoded columns, those that the model asks for among them.
      first: where they begin, for messages.
      interface: of the model.

    Returns:
      By the names of requests, [rows] or [rows, values]; bytes as objects.

    Raises:
      DataError: names the first row that the model cannot take.
    """
    return {c.request: _to_array(rows.column(c.name), c, first) for c in interface.columns}


def _to_array(column: pa.Array, wanted: RawColumn, first: Cell) -> np.ndarray:
    lengths = list_lengths(column)
    _check_finite(column, wanted, first)
    if wanted.width is not None:
        _check_lengths(lengths, wanted, wanted.width, first)
    if wanted.width == 1:
        return _to_numpy(first_values(column), wanted.dtype)
    if pa.types.is_null(column.type) or not len(column):
        values = np.empty(0)
    else:
        values = _to_numpy(column.flatten(), wanted.dtype)
    shape = len(lengths), wanted.width or max(1, int(lengths.max(initial=0)))
    dense = np.full(shape, MISSING.get(wanted.dtype, 0), numpy_dtype(wanted.dtype))
    dense[np.arange(shape[1]) < lengths[:, np.newaxis]] = values
    return dense


def _check_finite(column: pa.Array, wanted: RawColumn, first: Cell) -> None:
    """Refuses what the data of a training may not hold either, and no request."""
    found = find_infinite(column)
    if found is not None:
        place, number = found
        raise DataError(
            f"Column {wanted.name!r} is {number} in row {first.row + place} of {first.file} (32"
            " bits hold numbers up to 3.4e38): write a number, or leave it empty for a missing one."
        )


def _check_lengths(lengths: np.ndarray, wanted: RawColumn, width: int, first: Cell) -> None:
    may_miss = width == 1 and wanted.dtype in MISSING
    wrong = lengths > 1 if may_miss else lengths != width
    if wrong.any():
        place = int(np.argmax(wrong))
        values = "value" if width == 1 else "values"
        raise DataError(
            f"Column {wanted.name!r} has {lengths[place]} values in row {first.row + place} of"
            f" {first.file}, where the model takes {width} {values}."
        )


def _to_numpy(values: pa.Array, dtype: str) -> np.ndarray:
    if dtype == "string":
        if pa.types.is_null(values.type):
            return np.full(len(values), b"", object)
        found = values.fill_null(b"") if values.null_count else values
        return found.to_numpy(zero_copy_only=False)
    target = pa.from_numpy_dtype(np.dtype(dtype))
    # Nulls of a column of floats become NaN; whole numbers that may be missing travel as float64.
    return values.cast(target, safe=False).to_numpy(zero_copy_only=False).astype(dtype, copy=False)


def numpy_dtype(dtype: str) -> type | str:
    """What NumPy knows a dtype of the model's as: bytes are objects."""
    return object if dtype == "string" else dtype
