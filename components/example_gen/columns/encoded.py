"""The vectorised conversion of raw columns to the three types of a tf.Example's features.

An encoded column is a large list per row of int64, float32 or binary, which is what
`RecordBatchToExamplesEncoder` takes. A missing value is a null: a feature without a type, for which
the parser substitutes a default. (Stock CsvExampleGen writes a typed feature without values, for
which TensorFlow raises an error if it expects one.)
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

_SHOWN = 80
"""The most characters of a value in a message."""
_BYTES_OF_CHARACTER = 4
"""The most bytes of a character in UTF-8."""


class ColumnKind(IntEnum):
    """The type of a column; if parts of a column have different ones, the larger one is used."""

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
    """A place in the data, for messages; rows count from 1, including a CSV's header."""

    file: str
    row: int
    value: str = ""

    def __str__(self) -> str:
        return f"row {self.row} of {self.file}"

    def below(self, rows: SupportsIndex, value: str = "") -> Cell:
        """Returns the cell a number of rows further down."""
        return Cell(self.file, self.row + int(rows), value)


def excerpt(value: object) -> str:
    """Returns the beginning of a value, for a message."""
    if isinstance(value, bytes):
        # A value may be a whole picture, so only the bytes of the shown characters are decoded.
        value = value[: _BYTES_OF_CHARACTER * _SHOWN].decode(errors="backslashreplace")
    return str(value)[:_SHOWN]


# The most columns in a message.
_SHOWN_NAMES = 20


def show_names(names: Sequence[str]) -> str:
    """Returns the first names of columns on one line, for a message."""
    shown = [name if name.isprintable() else repr(name)[:80] for name in names[:_SHOWN_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def single_values(values: pa.Array) -> pa.LargeListArray:
    """Returns an encoded column of at most one value per row; nulls are missing values."""
    lengths = values.is_valid().to_numpy(zero_copy_only=False)
    return lists(values.drop_null() if values.null_count else values, lengths)


def first_values(column: pa.Array) -> pa.Array:
    """Returns the first value of each row of an encoded column; null if a row has none."""
    if pa.types.is_null(column.type):
        return column
    lengths = list_lengths(column)
    starts = np.cumsum(lengths) - lengths
    return column.flatten().take(pa.array(starts, mask=lengths == 0))


def flat_columns(batches: Sequence[pa.RecordBatch]) -> dict[str, pa.Array]:
    """Returns the encoded columns that have at most one value a row, as flat values with nulls."""
    columns = {}
    for name in batches[0].schema.names if batches else []:
        parts = [batch.column(name) for batch in batches]
        if all(list_lengths(part).max(initial=0) <= 1 for part in parts):
            columns[name] = _joined([first_values(part) for part in parts])
    return columns


def list_columns(
    batches: Sequence[pa.RecordBatch], several: Collection[str] = ()
) -> dict[str, tuple[np.ndarray, pa.Array]]:
    """Returns the columns that have several values in some rows: each row's number, and all values.

    Args:
      batches: batches of encoded columns.
      several: columns that have several values in other rows.
    """
    columns = {}
    for name in batches[0].schema.names if batches else []:
        parts = [batch.column(name) for batch in batches]
        lengths = np.concatenate([list_lengths(part) for part in parts])
        if name in several or lengths.max(initial=0) > 1:
            columns[name] = lengths, _joined([values_of(part) for part in parts])
    return columns


def values_of(column: pa.Array) -> pa.Array:
    """Returns all values of a list column, concatenated."""
    return pa.nulls(0) if pa.types.is_null(column.type) else column.flatten()


def rows_of(column: pa.Array) -> np.ndarray:
    """Returns the row of each value of a list column, int64."""
    return np.repeat(np.arange(len(column)), list_lengths(column))


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns the concatenated parts; a part without values may have no type."""
    typed = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
    return pa.concat_arrays([part.cast(typed) for part in parts])


def lists(values: pa.Array, lengths: np.ndarray) -> pa.LargeListArray:
    """Returns an encoded column of flat values and the number of them in each row; null for 0."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    missing = lengths == 0
    mask = pa.array(missing) if missing.any() else None
    return pa.LargeListArray.from_arrays(offsets, values, mask=mask)


def no_values(rows: int, kind: ColumnKind = ColumnKind.UNKNOWN) -> pa.LargeListArray:
    """Returns an encoded column without values; without a type if the kind is unknown."""
    if kind is ColumnKind.UNKNOWN:
        return pa.nulls(rows, pa.large_list(pa.int64()))
    return lists(pa.nulls(0, ARROW_TYPES[kind]), np.zeros(rows, np.int64))


def list_lengths(column: pa.Array) -> np.ndarray:
    """Returns the number of values in each row of a list column, int64; 0 for nulls."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def find_infinite(column: pa.Array) -> tuple[int, float] | None:
    """Returns the first row of a list column with an infinite number, and the number.

    In a float32 column, numbers that 32 bits cannot hold are infinite.
    """
    values = values_of(column)
    infinite = np.isinf(values.to_numpy()) if pa.types.is_floating(values.type) else np.zeros(0)
    if not infinite.any():
        return None
    place = int(np.argmax(infinite))
    return int(rows_of(column)[place]), values[place].as_py()


def label_lengths(labels: pa.Array) -> np.ndarray:
    """Returns the number of labels in each row; NaN is not counted."""
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


_TEXTUAL = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def kind_of(column_type: pa.DataType) -> ColumnKind | None:
    """Returns the kind of a column of a type; None for types that a feature cannot hold."""
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
    """Returns the error for a column of a type that a feature cannot hold."""
    return DataError(
        f"Column {name!r} of {file} has the type {column_type}, which a tf.Example cannot hold:"
        " convert it to numbers, text or lists of these, or remove the column."
    )


def flatten(table: pa.Table, file: str) -> pa.Table:
    """Returns the table with the fields of structs as columns named by path, such as
    `address.city`.

    Raises:
      DataError: two columns would have the same name.
    """
    while any(pa.types.is_struct(column_type) for column_type in table.schema.types):
        table = table.flatten()
    if len(set(table.column_names)) < table.num_columns:
        duplicate = next(name for name in table.column_names if table.column_names.count(name) > 1)
        raise DataError(
            f"{file} holds {duplicate!r} twice, as a key and as a key within an object: rename"
            " one of them."
        )
    return table


def _is_list(column_type: pa.DataType) -> bool:
    return (
        pa.types.is_list(column_type)
        or pa.types.is_large_list(column_type)
        or pa.types.is_fixed_size_list(column_type)
    )


def encode_typed(name: str, column: pa.Array, kind: ColumnKind, file: str) -> pa.LargeListArray:
    """Returns a typed column as an encoded one; nulls, also those in lists, are missing values."""
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
            f"Column {name!r} of {file} holds a value that a tf.Example cannot hold ({error}):"
            " store signed integers of at most 64 bits."
        ) from error


def _convert(values: pa.Array, kind: ColumnKind) -> pa.Array:
    """Returns values without nulls as int64, float32 or binary; times as ISO 8601, zoned ones in
    UTC.
    """
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    target = ARROW_TYPES[kind]
    if kind is ColumnKind.INT:
        return values.cast(target)
    if kind is ColumnKind.FLOAT:
        # Arrow does not cast decimals to float32 directly.
        return values.cast(pa.float64()).cast(target, safe=False)
    if types.is_timestamp(values.type):
        zone = "Z" if values.type.tz else ""
        text = values.cast(pa.timestamp(values.type.unit)).cast(pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(text, zone, "").cast(target)
    if not any(is_text(values.type) for is_text in _TEXTUAL):
        values = values.cast(pa.string())
    return values.cast(target)
