"""One parse of each schema: protobuf reads text in Python, seconds for thousands of columns."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.utils import io_utils


def remember_schemas() -> None:
    """Lets TFX's components of this process share parses; calling it again changes nothing."""
    reader: Any = io_utils.SchemaReader
    if hasattr(reader.read, "__wrapped__"):
        return

    @wraps(reader.read)
    def read(self: Any, schema_path: str) -> schema_pb2.Schema:
        del self
        with fileio.open(schema_path) as file:
            return schema_pb2.Schema.FromString(_parse(file.read()))

    reader.read = read


@lru_cache(2)
def _parse(text: str) -> bytes:
    """What the text says, as bytes: whoever reads may change what they get."""
    return text_format.Parse(text, schema_pb2.Schema()).SerializeToString()
