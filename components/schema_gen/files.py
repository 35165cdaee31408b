"""The files of schemas: read, written whole or not at all, and known again once they are edited."""

from __future__ import annotations

import hashlib
import uuid

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio

from trainer_module.errors import DataError

MARK = "# Inferred by Scopeline and kept; edit it to curate. sha256 of what follows: "


def schema_revision(curated: str | None, kept: str) -> str:
    """What a user wrote, as a hash, so that an edit is never mistaken for a cached schema.

    Empty while the schema is inferred: the statistics then say all.
    """
    if curated is not None:
        return _sha256(_read(curated))
    if not fileio.exists(kept):
        return ""
    mark, _, text = _read(kept).partition(b"\n")
    return "" if mark.decode(errors="replace") == MARK + _sha256(text) else _sha256(text)


def schema_content(path: str) -> bytes:
    """The bytes of a schema's file; none where there is no file."""
    return _read(path) if fileio.exists(path) else b""


def read_schema(path: str, label: str) -> schema_pb2.Schema:
    """Reads a schema in text format.

    Raises:
      DataError: names the file and what is wrong with it.
    """
    try:
        schema = text_format.Parse(_read(path).decode(), schema_pb2.Schema())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise DataError(f"{path}: not a schema in text format: {error}") from error
    columns = [feature.name for feature in schema.feature]
    if label not in columns:
        raise DataError(
            f"{path}: the schema has no feature for the label `{label}`, "
            f"only for {', '.join(columns)}"
        )
    return schema


def keep_schema(path: str, schema: schema_pb2.Schema) -> None:
    """Writes the kept schema, whole or not at all."""
    text = text_format.MessageToString(schema)
    replace_text(path, f"{MARK}{_sha256(text.encode())}\n{text}")


def replace_text(path: str, text: str) -> None:
    """Writes a file, whole or not at all."""
    scratch = f"{path}.{uuid.uuid4().hex}.tmp"
    write_text(scratch, text)
    fileio.rename(scratch, path, overwrite=True)


def write_text(path: str, text: str) -> None:
    """Writes a file, here or at a URI."""
    with fileio.open(path, "w") as opened:
        opened.write(text)


def _read(path: str) -> bytes:
    with fileio.open(path, "rb") as opened:
        return bytes(opened.read())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
