"""Columns that have a type of Arrow's, as in Parquet and JSON, to those of a tf.Example."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.columns.encoded import ARROW_TYPES, ColumnKind, lists, no_values
from trainer_module.errors import DataError

_TEXTUAL = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def kind_of(column_type: pa.DataType) -> ColumnKind | None:
    """The kind of a column of the type; None for types that no feature can hold."""
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


def untypable_error(name: str, column_type: pa.DataType, file: str) -> DataError:
    """The error for a column of a type that no feature can hold."""
    return DataError(
        f"Column {name!r} of {file} is of type {column_type}, which no feature can hold: turn"
        " it into numbers, text or lists of those, or leave it out."
    )


def flatten(table: pa.Table, file: str) -> pa.Table:
    """The table with objects (structs) as columns of what they hold, by path: `address.city`.

    Raises:
      DataError: two columns would have one name.
    """
    while any(pa.types.is_struct(column_type) for column_type in table.schema.types):
        table = table.flatten()
    if len(set(table.column_names)) < table.num_columns:
        twice = next(name for name in table.column_names if table.column_names.count(name) > 1)
        raise DataError(
            f"{file} holds {twice!r} twice, as a key and as a key within an object: rename"
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
    """A column as an encoded one; nulls, in lists too, are missing values."""
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
            f"Column {name!r} of {file} holds a value that no feature can hold ({error}): store"
            " integers of at most 64 bits, signed."
        ) from error


def _convert(values: pa.Array, kind: ColumnKind) -> pa.Array:
    """Values without nulls as int64, float32 or binary; times as ISO 8601, UTC where zoned."""
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    target = ARROW_TYPES[kind]
    if kind is ColumnKind.INT:
        return values.cast(target)
    if kind is ColumnKind.FLOAT:
        # Decimals have no direct way to float32.
        return values.cast(pa.float64()).cast(target, safe=False)
    if types.is_timestamp(values.type):
        zone = "Z" if values.type.tz else ""
        text = values.cast(pa.timestamp(values.type.unit)).cast(pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(text, zone, "").cast(target)
    if not any(is_text(values.type) for is_text in _TEXTUAL):
        values = values.cast(pa.string())
    return values.cast(target)
