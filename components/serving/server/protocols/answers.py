"""Answers of a model as clients are sent them: written once for all that were asked together."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import orjson

from components.serving.requests import Arrays
from components.serving.server.replies import Reply

Texts = list[bytes]
"""The JSON of each row."""
_OF_TEXT = 64
"""Bytes of a short text in an array, about."""


@dataclass(frozen=True)
class BatchAnswers:
    """What the model answers to several requests."""

    arrays: Arrays
    """By output, [rows, ...] each."""

    @cached_property
    def column_texts(self) -> dict[str, Texts]:
        """Each output of each row as JSON, by name.

        Numbers are as short as they can be and still be the same in their own dtype; NaN is null.
        Bytes are text, or base64 where the name of the output ends with `_bytes`, as TF Serving has
        it.
        """
        return {name: _to_texts(name, values) for name, values in self.arrays.items()}

    @cached_property
    def row_texts(self) -> Texts:
        """Rows as objects; of a single output they are its values."""
        columns = self.column_texts
        if len(columns) == 1:
            return next(iter(columns.values()))
        keys = [orjson.dumps(name).replace(b"%", b"%%") for name in columns]
        row = b"{" + b",".join(key + b":%b" for key in keys) + b"}"
        return [row % values for values in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The part of one request."""

    of: BatchAnswers
    rows: slice

    @property
    def arrays(self) -> Arrays:
        """The answers by name, [rows, ...] each."""
        return {name: values[self.rows] for name, values in self.of.arrays.items()}

    @property
    def column_texts(self) -> dict[str, Texts]:
        """As JSON, by output and row."""
        return {name: texts[self.rows] for name, texts in self.of.column_texts.items()}

    @property
    def row_texts(self) -> Texts:
        """As JSON, by row."""
        return self.of.row_texts[self.rows]


class AnswerForm(Protocol):
    """How the answer to a request is written; it can be pickled."""

    def part(self, answer: RequestAnswer) -> Any:
        """What is written of some of its rows."""

    def reply(self, parts: Sequence[Any]) -> Reply:
        """The answer, of what was written of all its rows in their order."""


def size_of_part(part: Any) -> int:
    """Bytes of what an `AnswerForm` has written of some rows, about."""
    if isinstance(part, bytes):
        return len(part)
    if isinstance(part, np.ndarray):
        return part.size * _OF_TEXT if part.dtype == object else part.nbytes
    return sum(map(size_of_part, part.values()))


def _to_texts(name: str, values: np.ndarray) -> Texts:
    if values.dtype == object:
        return _of_bytes(name, values)
    if values.ndim > 2 or not values.size:
        return [_write_numbers(row) for row in values]
    written = _write_numbers(values)
    if values.ndim == 1:
        return written[1:-1].split(b",")
    return written[1:-1].replace(b"],[", b"]\n[").split(b"\n")


def _write_numbers(values: np.ndarray) -> bytes:
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _of_bytes(name: str, values: np.ndarray) -> Texts:
    """Of few different values, as classes are."""
    known = {value: _to_json(name, value) for value in set(values.ravel().tolist())}
    listed = values.tolist()
    if values.ndim == 1:
        return [known[value] for value in listed]

    def write(value: Any) -> bytes:
        if isinstance(value, list):
            return b"[%b]" % b",".join(map(write, value))
        return known[value]

    if len(listed) > 1 and (values == values[0]).all():
        return [write(listed[0])] * len(listed)  # As the names of all classes are.
    return list(map(write, listed))


def _to_json(name: str, value: bytes) -> bytes:
    if name.endswith("_bytes"):
        return orjson.dumps({"b64": base64.b64encode(value).decode()})
    return orjson.dumps(value.decode(errors="replace"))
