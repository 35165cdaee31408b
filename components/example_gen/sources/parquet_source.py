"""Parquet: columns by their own types, a few thousand rows of a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from components.example_gen.columns import ARROW_TYPES, Cell, Column, ColumnKind, lists, no_values
from components.example_gen.files import open_file
from components.example_gen.sources.base import Batch, Files, Source, Survey
from trainer_module.errors import DataError

_BATCH_ROWS = 4096
_TEXTUAL = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


class ParquetSource(Source):
    """Reads Parquet files; the footer tells the types, so no pass over the rows is needed."""

    def survey(self, files: Files) -> Survey:
        """The columns of one file."""
        file = files[0]
        with _open(file) as parquet:
            rows = parquet.metadata.num_rows
            if not rows:
                raise DataError(f"{file} holds no rows: add rows, or leave the file out.")
            return Survey(
                file,
                {
                    column.name: _survey(column.name, column.type, rows, file)
                    for column in parquet.schema_arrow
                },
            )

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of one file."""
        file, row = files[0], 1
        with _open(file) as parquet:
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
                columns = [
                    _encode(name, values, kinds[name], file)
                    for name, values in zip(batch.schema.names, batch.columns, strict=True)
                ]
                yield Batch(pa.record_batch(columns, batch.schema.names), Cell(file, row))
                row += batch.num_rows


@contextmanager
def _open(file: str) -> Iterator[pq.ParquetFile]:
    try:
        with open_file(file) as stream, pq.ParquetFile(stream) as parquet:
            yield parquet
    except (pa.ArrowInvalid, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file} is no complete Parquet file ({reason}): copy or write it again."
        ) from error


def _survey(name: str, column_type: pa.DataType, rows: int, file: str) -> Column:
    kind = _kind(column_type)
    if kind is None:
        raise DataError(
            f"Column {name!r} of {file} is of type {column_type}, which no feature can hold: turn"
            " it into numbers, text or lists of those, or leave it out."
        )
    if kind is ColumnKind.BYTES:
        return Column(kind, texts=rows, first_text=Cell(file, 1, f"a {column_type}"))
    return Column(kind, numbers=rows if kind is not ColumnKind.UNKNOWN else 0)


def _kind(column_type: pa.DataType) -> ColumnKind | None:
    """The kind of a column of the type; None for types that no feature can hold."""
    types = pa.types
    if _is_list(column_type):
        return None if _is_list(column_type.value_type) else _kind(column_type.value_type)
    if types.is_dictionary(column_type):
        return _kind(column_type.value_type)
    if types.is_null(column_type):
        return ColumnKind.UNKNOWN
    if types.is_integer(column_type) or types.is_boolean(column_type):
        return ColumnKind.INT
    if types.is_floating(column_type) or types.is_decimal(column_type):
        return ColumnKind.FLOAT
    if types.is_temporal(column_type) and not types.is_duration(column_type):
        return ColumnKind.BYTES if not types.is_interval(column_type) else None
    return ColumnKind.BYTES if any(is_text(column_type) for is_text in _TEXTUAL) else None


def _is_list(column_type: pa.DataType) -> bool:
    return (
        pa.types.is_list(column_type)
        or pa.types.is_large_list(column_type)
        or pa.types.is_fixed_size_list(column_type)
    )


def _encode(name: str, column: pa.Array, kind: ColumnKind, file: str) -> pa.LargeListArray:
    """A column as an encoded one; nulls, in lists too, are missing values."""
    if kind is ColumnKind.UNKNOWN or pa.types.is_null(column.type):
        return no_values(len(column))
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
