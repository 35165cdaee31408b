"""The types of columns whose format guesses them, and those that earlier data gave them."""

from __future__ import annotations

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.example_gen.columns import Column, ColumnKind
from components.example_gen.files.opening import exists, open_file
from components.example_gen.formats import ExampleGenSettings
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


def settle_kind(
    name: str, column: Column, known: ColumnKind, settings: ExampleGenSettings
) -> ColumnKind:
    """The kind of a column of a format that guesses types.

    A quantity is a float even where all of it happens to be whole: it may have a fraction or be
    missing some day, which an integer cannot say to a model in service. A name has to stay what it
    is: where a float would change one, the column becomes whole numbers, though it was a quantity
    before, and SchemaGen follows.

    Args:
      name: the column's.
      column: what its values would do as.
      known: what a schema has for it.
      settings: say which columns' whole numbers are names.
    """
    if column.kind is not ColumnKind.INT:
        return max(column.kind, known)
    if name not in settings.names:
        return known if known is ColumnKind.INT else max(ColumnKind.FLOAT, known)
    if column.needs_integers and known is ColumnKind.FLOAT:
        return ColumnKind.INT
    return max(column.kind, known)
