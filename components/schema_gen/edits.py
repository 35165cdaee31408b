"""Changes of a schema's text: what they do not concern stays as its author wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

_KINDS = ("feature", "string_domain")
"""The blocks at the top of a schema that have names."""

_TOKEN = re.compile(r'#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[{}]|\w+')


@dataclass(frozen=True)
class _Block:
    """A block at the top of a text, and where it is there."""

    kind: str
    name: str
    start: int
    end: int


def edit_schema(text: str, before: schema_pb2.Schema, after: schema_pb2.Schema) -> str:
    """The text with the features and lists of values that have changed, comments elsewhere kept.

    Args:
      text: a schema in text format.
      before: what it says.
      after: what it shall say; no other part may have changed.
    """
    old = {(kind, item.name): item for kind in _KINDS for item in getattr(before, kind)}
    new = {(kind, item.name): item for kind in _KINDS for item in getattr(after, kind)}
    edited, end = "", 0
    for block in _blocks(text):
        key = (block.kind, block.name)
        if old[key] != new.get(key):
            written = _write(block.kind, new[key]) if key in new else ""
            edited += text[end : block.start] + written
            end = block.end if written else block.end + (text[block.end : block.end + 1] == "\n")
    edited += text[end:]
    added = [_write(kind, item) for (kind, name), item in new.items() if (kind, name) not in old]
    return "\n".join([edited.rstrip("\n"), *added]) + "\n"


def _blocks(text: str) -> Iterator[_Block]:
    """The named blocks at the top of a text, in their order."""
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
