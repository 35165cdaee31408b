"""The source of Parquet files, which define the types of their columns.

The fields of structs are columns whose names are paths, such as `address.city`. Files of
`serve --log-requests` contain additional columns of the server. These columns are left out, so that
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
from components.example_gen.files import looks_like_text, open_file, read_head, reason_of
from components.example_gen.sources.base import Batch, Files, Source, Survey
from trainer_module.errors import DataError

OWN_COLUMNS_KEY = b"scopeline.own_columns"
"""The key in the metadata of a Parquet schema under which the server stores the names of its own
columns as JSON."""
REQUEST_ID = "request_id"
"""The column with the id of a row. In a request with several rows, it is the request's id and the
row's index, such as `id/0`."""
REQUEST_TIME = "request_time"
MODEL_VERSION = "model_version"
ANSWER = "answer_"
"""The prefix of columns with predictions."""


def mark_own(columns: Iterable[str]) -> dict[bytes, bytes]:
    """Returns the schema metadata that stores the names of the server's columns."""
    return {OWN_COLUMNS_KEY: json.dumps(list(columns)).encode()}


def read_own(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """Returns the names of the server's columns in schema metadata. Other files have none."""
    return frozenset(json.loads((metadata or {}).get(OWN_COLUMNS_KEY, b"[]")))


_BATCH_ROWS = 4096
_PANDAS_INDEX = "__index_level_"


class ParquetSource(Source):
    """A reader of Parquet files in one pass, as the footer of a file defines the types."""

    def survey(self, files: Files) -> Survey:
        """Returns the columns of a file."""
        file = files[0]
        with _open(file) as parquet:
            rows = parquet.metadata.num_rows
            if not rows:
                raise DataError(f"{file} has no rows: add rows, or remove the file.")
            columns = flatten(self._data_columns(parquet.schema_arrow.empty_table()), file).schema
            return Survey(
                file,
                {column.name: _survey(column.name, column.type, rows, file) for column in columns},
                rows=rows,
            )

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns of the footer."""
        return {name: column.kind for name, column in self.survey(files).columns.items()}

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of one file."""
        file, row = files[0], 1
        with _open(file) as parquet:
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
                table = flatten(self._data_columns(pa.Table.from_batches([batch])), file)
                columns = {
                    name: encode_typed(name, values.combine_chunks(), kinds[name], file)
                    for name, values in zip(table.column_names, table.columns, strict=True)
                }
                yield Batch(pa.RecordBatch.from_pydict(columns), Cell(file, row))
                row += batch.num_rows

    def _data_columns(self, table: pa.Table) -> pa.Table:
        """Returns the table without the index of pandas and the columns that a server has added.

        If labels are joined, their key is kept.
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
            f"{file} is not a complete Parquet file ({reason_of(error)}): {_remedy(file)}."
        ) from error


def _remedy(file: str) -> str:
    """Returns the correction for a file that is not a complete Parquet file."""
    try:
        is_text = looks_like_text(read_head(file))
    except DataError:
        is_text = False
    return "it is text, so write data.format: csv or jsonl" if is_text else "copy or write it again"


def _survey(name: str, column_type: pa.DataType, rows: int, file: str) -> ColumnSurvey:
    kind = kind_of(column_type)
    if kind is None:
        raise unsupported_type_error(name, column_type, file)
    if kind is ColumnKind.BYTES:
        return ColumnSurvey(kind, texts=rows, first_text=Cell(file, 1, f"a {column_type}"))
    return ColumnSurvey(kind, numbers=rows if kind is not ColumnKind.UNKNOWN else 0)
