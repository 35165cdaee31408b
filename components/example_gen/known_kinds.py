"""The types that earlier data gave its columns."""

from __future__ import annotations

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.example_gen.columns import ColumnKind
from components.example_gen.files import exists, open_file
from trainer_module.errors import DataError

_KINDS = {
    schema_pb2.INT: ColumnKind.INT,
    schema_pb2.FLOAT: ColumnKind.FLOAT,
    schema_pb2.BYTES: ColumnKind.BYTES,
}


def read_known_kinds(path: str) -> dict[str, ColumnKind]:
    """The kind of each column of a schema in text format; none if there is no such file.

    Raises:
      DataError: the file is no schema.
    """
    if not path or not exists(path):
        return {}
    try:
        with open_file(path) as file:
            schema = text_format.Parse(file.read().decode(), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} is no schema in text format: {error}") from None
    return {f.name: _KINDS[f.type] for f in schema.feature if f.type in _KINDS}
