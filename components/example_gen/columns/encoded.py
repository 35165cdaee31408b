"""Columns of raw values to the three types of a tf.Example's features, vectorised.

An encoded column is a large list per row of int64, float32 or binary, which is what
`RecordBatchToExamplesEncoder` takes. A missing value is a null: a feature without a type, which a
default can stand for when the example is parsed. (Stock CsvExampleGen writes one of its type
without values, of which TensorFlow makes an error where it expects one.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SHOWN = 80
"""Characters of a value."""
_BYTES_OF_CHARACTER = 4
"""At most, in UTF-8."""


class ColumnKind(IntEnum):
    """The type of a column; of two kinds seen in one column the larger holds for all of it."""

    UNKNOWN = 0
    INT = 1
    FLOAT = 2
    BYTES = 3


ARROW_TYPES = {
    ColumnKind.UNKNOWN: pa.int64(),
    ColumnKind.INT: pa.int64(),
    ColumnKind.FLOAT: pa.float32(),
    ColumnKind.BYTES: pa.binary(),
}


@dataclass(frozen=True)
class Cell:
    """A place in the data, for messages; rows count from 1, a CSV's header included."""

    file: str
    row: int
    value: str = ""


def shown(value: bytes | str) -> str:
    """The beginning of a value, as a message shows it."""
    if isinstance(value, bytes):
        # A value may be a whole picture: no more of it is decoded than can be shown.
        value = value[: _BYTES_OF_CHARACTER * _SHOWN].decode(errors="backslashreplace")
    return value[:_SHOWN]


def single_values(values: pa.Array) -> pa.LargeListArray:
    """An encoded column of at most one value per row; nulls are missing values."""
    lengths = values.is_valid().to_numpy(zero_copy_only=False)
    return lists(values.drop_null() if values.null_count else values, lengths)


def first_values(column: pa.Array) -> pa.Array:
    """The first value of each row of an encoded column, null where it has none."""
    if pa.types.is_null(column.type):
        return column
    lengths = list_lengths(column)
    starts = np.cumsum(lengths) - lengths
    return column.flatten().take(pa.array(starts, mask=lengths == 0))


def flat_columns(batches: Sequence[pa.RecordBatch]) -> dict[str, pa.Array]:
    """Encoded columns as flat values, null where there is none; without those of several a row."""
    columns = {}
    for name in batches[0].schema.names if batches else []:
        parts = [batch.column(name) for batch in batches]
        if all(list_lengths(part).max(initial=0) <= 1 for part in parts):
            columns[name] = _joined([first_values(part) for part in parts])
    return columns


def list_columns(
    batches: Sequence[pa.RecordBatch], several: Collection[str] = ()
) -> dict[str, tuple[np.ndarray, pa.Array]]:
    """Columns of which some rows have several values: how many each row has, and all of them.

    Args:
      batches: of encoded columns.
      several: columns of which other rows have several values.
    """
    columns = {}
    for name in batches[0].schema.names if batches else []:
        parts = [batch.column(name) for batch in batches]
        lengths = np.concatenate([list_lengths(part) for part in parts])
        if name in several or lengths.max(initial=0) > 1:
            columns[name] = lengths, _joined([_values(part) for part in parts])
    return columns


def _values(column: pa.Array) -> pa.Array:
    return pa.nulls(0) if pa.types.is_null(column.type) else column.flatten()


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """One array of all parts, of which some may have no type, as they have no value."""
    typed = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
    return pa.concat_arrays([part.cast(typed) for part in parts])


def lists(values: pa.Array, lengths: np.ndarray) -> pa.LargeListArray:
    """An encoded column of flat values and the number of them in each row, null for 0."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    missing = lengths == 0
    mask = pa.array(missing) if missing.any() else None
    return pa.LargeListArray.from_arrays(offsets, values, mask=mask)


def no_values(rows: int, kind: ColumnKind = ColumnKind.UNKNOWN) -> pa.LargeListArray:
    """An encoded column without any value; of no known type, features without a kind."""
    if kind is ColumnKind.UNKNOWN:
        return pa.nulls(rows, pa.large_list(pa.int64()))
    return lists(pa.nulls(0, ARROW_TYPES[kind]), np.zeros(rows, np.int64))


def list_lengths(column: pa.Array) -> np.ndarray:
    """Number of values in each row of a list column, int64; 0 for nulls."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def find_infinite(column: pa.Array) -> tuple[int, float] | None:
    """The place of the first row of a list column that holds an infinite number, and that number.

    A number that 32 bits cannot hold is infinite in a column of them.
    """
    if pa.types.is_null(column.type):
        return None
    values = column.flatten()
    if not pa.types.is_floating(values.type):
        return None
    infinite = np.isinf(values.to_numpy())
    if not infinite.any():
        return None
    place = int(np.argmax(infinite))
    row = np.searchsorted(np.cumsum(list_lengths(column)), place, side="right")
    return int(row), values[place].as_py()


def label_lengths(labels: pa.Array) -> np.ndarray:
    """Number of labels in each row; NaN is none, as it is of no class and no number."""
    lengths = list_lengths(labels)
    if lengths.max(initial=0) != 1:
        return lengths
    values = labels.flatten()
    if pa.types.is_floating(values.type):
        lengths[lengths == 1] = ~np.isnan(values.to_numpy())
    elif pa.types.is_binary(values.type):
        names = pc.ascii_lower(pc.ascii_trim_whitespace(values.view(pa.string())))
        is_nan = pc.equal(names, "nan").to_numpy(zero_copy_only=False)
        lengths[lengths == 1] = is_nan == 0
    return lengths
