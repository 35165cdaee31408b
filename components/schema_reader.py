"""Reads the schema in SchemaGen's output artifact."""

from __future__ import annotations

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils


def read_schema_artifact(folder: str) -> schema_pb2.Schema:
    """Returns the schema in the folder of a Schema artifact."""
    return io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(folder))
