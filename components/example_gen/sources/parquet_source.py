"""Parquet: columns by their own types, a few thousand rows of a row group at a time.

The fields of structs are columns named by their path, such as `address.city`, as with JSON lines.
Files of `serve --log-requests` contain additional columns of the server; they are left out, so that
a model does not learn from another model's predictions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from components.example_gen.columns.encoded import (
    Cell,
    ColumnKind,
    encode_typed,
    flatten,
    kind_of,
    unsupported_type_error,
)
from components.example_gen.columns.type_inference import ColumnSurvey
from components.example_gen.files import open_file, reason_of
from components.example_gen.sources.base import Batch, Files, Source, Survey
from trainer_module.errors import DataError

OWN_COLUMNS_KEY = b"scopeline.own_columns"
"""The key of the server's column names, as JSON, in the metadata of a Parquet file's schema."""
REQUEST_ID = "request_id"
"""The column of the id of a row: that of the request, with the row's place in a batch, such as
`id/0`."""
REQUEST_TIME = "request_time"
MODEL_VERSION = "model_version"
ANSWER = "answer_"
"""The prefix of the columns with the predictions."""


def mark_own(columns: Iterable[str]) -> dict[bytes, bytes]:
    """Returns the metadata that `read_own` reads."""
    return {OWN_COLUMNS_KEY: json.dumps(list(columns)).encode()}


def read_own(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """Returns the server's columns in a file; none if a server has not written the file."""
    return frozenset(json.loads((metadata or {}).get(OWN_COLUMNS_KEY, b"[]")))


_BATCH_ROWS = 4096
_PANDAS_INDEX = "__index_level_"


class ParquetSource(Source):
    """A reader of Parquet files; the footer holds the types, so that no first pass is needed."""

    def survey(self, files: Files) -> Survey:
        """Returns the columns of one file."""
        file = files[0]
        with _open(file) as parquet:
            rows = parquet.metadata.num_rows
            if not rows:
                raise DataError(f"{file} holds no rows: add rows, or leave the file out.")
            columns = flatten(self._data_of(parquet.schema_arrow.empty_table()), file).schema
            return Survey(
                file,
                {column.name: _survey(column.name, column.type, rows, file) for column in columns},
            )

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns of the footer."""
        return {name: column.kind for name, column in self.survey(files).columns.items()}

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of one file."""
        file, row = files[0], 1
        with _open(file) as parquet:
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
                table = flatten(self._data_of(pa.Table.from_batches([batch])), file)
                columns = {
                    name: encode_typed(name, values.combine_chunks(), kinds[name], file)
                    for name, values in zip(table.column_names, table.columns, strict=True)
                }
                yield Batch(pa.RecordBatch.from_pydict(columns), Cell(file, row))
                row += batch.num_rows

    def _data_of(self, table: pa.Table) -> pa.Table:
        """Returns the columns that are data, and the key of labels that are joined.

        Leaves out the index that pandas stores, and the columns that a server adds to requests.
        """
        key = {self._settings.labels.key} if self._settings.labels else set()
        own = read_own(table.schema.metadata) - key
        return table.drop_columns(
            [n for n in table.column_names if n in own or n.startswith(_PANDAS_INDEX)]
        )


@contextmanager
def _open(file: str) -> Iterator[pq.ParquetFile]:
    try:
        with open_file(file) as stream, pq.ParquetFile(stream) as parquet:
            yield parquet
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{file} is not a complete Parquet file ({reason_of(error)}): copy or write it again."
        ) from error


def _survey(name: str, column_type: pa.DataType, rows: int, file: str) -> ColumnSurvey:
    kind = kind_of(column_type)
    if kind is None:
        raise unsupported_type_error(name, column_type, file)
    if kind is ColumnKind.BYTES:
        return ColumnSurvey(kind, texts=rows, first_text=Cell(file, 1, f"a {column_type}"))
    return ColumnSurvey(kind, numbers=rows if kind is not ColumnKind.UNKNOWN else 0)
