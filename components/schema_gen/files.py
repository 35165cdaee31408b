"""Reads, writes and edits the files of schemas, and detects a user's edits."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio

from components.copying import write_text
from trainer_module.errors import DataError

MARK = "# Inferred by Scopeline and kept; edit it to curate. sha256 of what follows: "


def schema_revision(curated: str | None, kept: str) -> str:
    """Returns a hash of a schema that a user has written or edited, for SchemaGen's cache key.

    The result is empty for an inferred schema, which depends on the statistics alone.

    Args:
      kept: the path of the stored schema, which a user may have edited.
    """
    if curated is not None:
        return _sha256(_read(curated))
    if not fileio.exists(kept):
        return ""
    mark, _, text = _read(kept).partition(b"\n")
    return "" if mark.decode(errors="replace") == MARK + _sha256(text) else _sha256(text)


def schema_content(path: str) -> bytes:
    """Returns the content of a schema's file, or empty bytes without a file."""
    return _read(path) if fileio.exists(path) else b""


def read_schema(path: str, label: str) -> schema_pb2.Schema:
    """Reads a schema in text format.

    Raises:
      DataError: the file cannot be read, is not a schema, or lacks the label.
    """
    try:
        schema = text_format.Parse(_read(path).decode(), schema_pb2.Schema())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise DataError(f"{path}: not a schema in text format: {error}") from error
    columns = [feature.name for feature in schema.feature]
    if label not in columns:
        raise DataError(
            f"{path}: the schema has no feature for the label `{label}`; its features are "
            f"{', '.join(columns)}"
        )
    return schema


def keep_schema(path: str, schema: schema_pb2.Schema) -> None:
    """Writes the inferred schema atomically. The first line has a hash that reveals later edits."""
    text = text_format.MessageToString(schema)
    replace_text(path, f"{MARK}{_sha256(text.encode())}\n{text}")


def replace_text(path: str, text: str) -> None:
    """Writes a file at a path or URI atomically."""
    scratch = f"{path}.{uuid.uuid4().hex}.tmp"
    write_text(text, scratch)
    fileio.rename(scratch, path, overwrite=True)


def _read(path: str) -> bytes:
    with fileio.open(path, "rb") as opened:
        return bytes(opened.read())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_KINDS = ("feature", "string_domain")
"""The kinds of top-level blocks of a schema that have names."""

_TOKEN = re.compile(r'#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[{}]|\w+')


@dataclass(frozen=True)
class _Block:
    """A named top-level block of a schema in text format, and its position."""

    kind: str
    name: str
    start: int
    end: int


def edit_schema(text: str, before: schema_pb2.Schema, after: schema_pb2.Schema) -> str:
    """Returns a schema in text format with changed features and lists of values.

    Comments outside of the changed blocks are preserved.

    Args:
      after: the new schema, in which only features and lists of values may differ.
    """
    old = {(kind, item.name): item for kind in _KINDS for item in getattr(before, kind)}
    new = {(kind, item.name): item for kind in _KINDS for item in getattr(after, kind)}
    edited, end = "", 0
    for block in _blocks(text):
        key = (block.kind, block.name)
        if old[key] != new.get(key):
            new_text = _write(block.kind, new[key]) if key in new else ""
            edited += text[end : block.start] + new_text
            end = block.end if new_text else block.end + (text[block.end : block.end + 1] == "\n")
    edited += text[end:]
    added = [_write(kind, item) for (kind, name), item in new.items() if (kind, name) not in old]
    return "\n".join([edited.rstrip("\n"), *added]) + "\n"


def _blocks(text: str) -> Iterator[_Block]:
    """Yields the named top-level blocks of a schema in text format, in order."""
    depth, kind, start = 0, "", 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word == "{":
            depth += 1
        elif word == "}":
            depth -= 1
            if not depth and kind in _KINDS:
                parsed = text_format.Parse(text[start : token.end()], schema_pb2.Schema())
                (item,) = getattr(parsed, kind)
                yield _Block(kind, item.name, start, token.end())
        elif not depth and word[0] not in "#\"'":
            kind, start = word, token.start()


def _write(kind: str, item: Any) -> str:
    return text_format.MessageToString(schema_pb2.Schema(**{kind: [item]})).rstrip("\n")
