"""The conversion of raw columns to encoded columns, which hold the types of a tf.Example.

An encoded column has a list of int64, float32 or binary values per row, as
`RecordBatchToExamplesEncoder` requires. A missing value is null. It becomes a feature without a
type, for which TensorFlow's parser substitutes a default. (TFX's CsvExampleGen writes a typed
feature without values, and the parser raises an error if a value is required.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import SupportsIndex

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer_module.errors import DataError

_SHOWN_CHARACTERS = 80
"""The maximum number of characters of a value in a message."""
_CHARACTER_BYTES = 4
"""The maximum number of bytes of a character in UTF-8."""


class ColumnKind(IntEnum):
    """The type of a column. If parts of a column have different kinds, the larger kind is used."""

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
    """A cell of the data, for messages."""

    file: str
    row: int
    """The number of the row, counted from 1. Row 1 of a CSV file is its header."""
    value: str = ""
    """The beginning of the value."""

    def __str__(self) -> str:
        return f"row {self.row} of {self.file}"

    def below(self, rows: SupportsIndex, value: str = "") -> Cell:
        """Returns the cell that is `rows` rows below this cell."""
        return Cell(self.file, self.row + int(rows), value)


def excerpt(value: object) -> str:
    """Returns the beginning of a value, for a message."""
    if isinstance(value, bytes):
        # A value may be a picture of megabytes, so only the first bytes are decoded.
        value = value[: _CHARACTER_BYTES * _SHOWN_CHARACTERS].decode(errors="backslashreplace")
    return str(value)[:_SHOWN_CHARACTERS]


# The maximum number of columns in a message.
_SHOWN_NAMES = 20


def show_names(names: Sequence[str]) -> str:
    """Returns the first of the columns' names on one line, for a message."""
    shown = [name if name.isprintable() else repr(name)[:80] for name in names[:_SHOWN_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def single_values(values: pa.Array) -> pa.LargeListArray:
    """Returns an encoded column for at most one value per row. Nulls are missing values."""
    lengths = values.is_valid().to_numpy(zero_copy_only=False)
    return lists(values.drop_null() if values.null_count else values, lengths)


def first_values(column: pa.Array) -> pa.Array:
    """Returns the first value of each row of an encoded column, or null for an empty row."""
    if pa.types.is_null(column.type):
        return column
    lengths = list_lengths(column)
    starts = np.cumsum(lengths) - lengths
    return column.flatten().take(pa.array(starts, mask=lengths == 0))


def flat_columns(batches: Sequence[pa.RecordBatch]) -> dict[str, pa.Array]:
    """Returns the columns with at most one value per row, by name. The values are flat, with null
    for missing values.
    """
    columns = {}
    for name in batches[0].schema.names if batches else []:
        parts = [batch.column(name) for batch in batches]
        if all(list_lengths(part).max(initial=0) <= 1 for part in parts):
            columns[name] = _joined([first_values(part) for part in parts])
    return columns


def list_columns(
    batches: Sequence[pa.RecordBatch], known_lists: Collection[str] = ()
) -> dict[str, tuple[np.ndarray, pa.Array]]:
    """Returns the columns with several values in some rows, by name.

    Each column consists of the number of values in each row, and all values.

    Args:
      known_lists: columns that are included, as they have several values in other rows.
    """
    columns = {}
    for name in batches[0].schema.names if batches else []:
        parts = [batch.column(name) for batch in batches]
        lengths = np.concatenate([list_lengths(part) for part in parts])
        if name in known_lists or lengths.max(initial=0) > 1:
            columns[name] = lengths, _joined([values_of(part) for part in parts])
    return columns


def values_of(column: pa.Array) -> pa.Array:
    """Returns all values of an encoded column, concatenated."""
    return pa.nulls(0) if pa.types.is_null(column.type) else column.flatten()


def rows_of(column: pa.Array) -> np.ndarray:
    """Returns the row of each value of an encoded column, [values] int64."""
    return np.repeat(np.arange(len(column)), list_lengths(column))


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns the concatenated parts. Parts without values may have no type."""
    typed = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
    return pa.concat_arrays([part.cast(typed) for part in parts])


def lists(values: pa.Array, lengths: np.ndarray) -> pa.LargeListArray:
    """Returns an encoded column.

    Args:
      lengths: the number of values in each row; rows without values become null.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    missing = lengths == 0
    mask = pa.array(missing) if missing.any() else None
    return pa.LargeListArray.from_arrays(offsets, values, mask=mask)


def no_values(rows: int, kind: ColumnKind = ColumnKind.UNKNOWN) -> pa.LargeListArray:
    """Returns an encoded column without values."""
    if kind is ColumnKind.UNKNOWN:
        return pa.nulls(rows, pa.large_list(pa.int64()))
    return lists(pa.nulls(0, ARROW_TYPES[kind]), np.zeros(rows, np.int64))


def list_lengths(column: pa.Array) -> np.ndarray:
    """Returns the number of values in each row of an encoded column, [rows] int64. Nulls have 0."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def find_infinite(column: pa.Array) -> tuple[int, float] | None:
    """Returns the first row of an encoded column with an infinite number, and the number.

    Numbers that are too large for float32 are infinite in the column. The result is None if all
    numbers are finite.
    """
    values = values_of(column)
    infinite = np.isinf(values.to_numpy()) if pa.types.is_floating(values.type) else np.zeros(0)
    if not infinite.any():
        return None
    index = int(np.argmax(infinite))
    return int(rows_of(column)[index]), values[index].as_py()


def label_lengths(labels: pa.Array) -> np.ndarray:
    """Returns the number of labels in each row. The number NaN is not a label; the name is."""
    lengths = list_lengths(labels)
    if lengths.max(initial=0) != 1:
        return lengths
    values = labels.flatten()
    if pa.types.is_floating(values.type):
        lengths[lengths == 1] = ~np.isnan(values.to_numpy())
    return lengths


_TEXTUAL = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def kind_of(column_type: pa.DataType) -> ColumnKind | None:
    """Returns the kind of a column by its Arrow type, or None if a tf.Example cannot hold it."""
    types = pa.types
    if _is_list(column_type):
        return None if _is_list(column_type.value_type) else kind_of(column_type.value_type)
    if types.is_dictionary(column_type):
        return kind_of(column_type.value_type)
    if types.is_null(column_type):
        return ColumnKind.UNKNOWN
    if types.is_integer(column_type) or types.is_boolean(column_type):
        return ColumnKind.INT
    if types.is_floating(column_type) or types.is_decimal(column_type):
        return ColumnKind.FLOAT
    if types.is_temporal(column_type) and not types.is_duration(column_type):
        return ColumnKind.BYTES if not types.is_interval(column_type) else None
    return ColumnKind.BYTES if any(is_text(column_type) for is_text in _TEXTUAL) else None


def unsupported_type_error(name: str, column_type: pa.DataType, file: str) -> DataError:
    """Returns the error for a column of a type that a tf.Example cannot hold."""
    return DataError(
        f"Column {name!r} of {file} has the type {column_type}, which a tf.Example cannot hold:"
        " convert the values to numbers, text, or lists of numbers or text, or remove the column."
    )


def flatten(table: pa.Table, file: str) -> pa.Table:
    """Returns the table with the fields of structs as columns whose names are paths, such as
    `address.city`.

    Raises:
      DataError: two columns would have the same name.
    """
    while any(pa.types.is_struct(column_type) for column_type in table.schema.types):
        table = table.flatten()
    if len(set(table.column_names)) < table.num_columns:
        duplicate = next(name for name in table.column_names if table.column_names.count(name) > 1)
        raise DataError(
            f"{file} contains {duplicate!r} twice, as a key with a dot and as a key within an"
            " object: rename one of the keys."
        )
    return table


def _is_list(column_type: pa.DataType) -> bool:
    return (
        pa.types.is_list(column_type)
        or pa.types.is_large_list(column_type)
        or pa.types.is_fixed_size_list(column_type)
    )


def encode_typed(name: str, column: pa.Array, kind: ColumnKind, file: str) -> pa.LargeListArray:
    """Returns an Arrow column as an encoded column. Nulls are missing values, also within lists."""
    if kind is ColumnKind.UNKNOWN or pa.types.is_null(column.type):
        return no_values(len(column), kind)
    if _is_list(column.type):
        values, parents = column.flatten(), pc.list_parent_indices(column)
    else:
        values, parents = column, pa.array(np.arange(len(column)))
    valid = values.is_valid()
    lengths = np.bincount(parents.filter(valid).to_numpy(), minlength=len(column))
    try:
        return lists(_convert(values.filter(valid), kind), lengths)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"Column {name!r} of {file} contains a value that a tf.Example cannot hold ({error}):"
            " store integers as signed integers of at most 64 bits."
        ) from error


def _convert(values: pa.Array, kind: ColumnKind) -> pa.Array:
    """Returns values without nulls as int64, float32 or binary.

    Times are converted to text in ISO 8601; times with a zone are converted to UTC.
    """
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    target = ARROW_TYPES[kind]
    if kind is ColumnKind.INT:
        return values.cast(target)
    if kind is ColumnKind.FLOAT:
        # Arrow does not cast decimals to float32 directly; large integers are rounded.
        return values.cast(pa.float64(), safe=False).cast(target, safe=False)
    if types.is_timestamp(values.type):
        zone = "Z" if values.type.tz else ""
        text = values.cast(pa.timestamp(values.type.unit)).cast(pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(text, zone, "").cast(target)
    if not any(is_text(values.type) for is_text in _TEXTUAL):
        values = values.cast(pa.string())
    return values.cast(target)
