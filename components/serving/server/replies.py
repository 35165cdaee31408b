"""What is sent to whoever asked: answers, written once for all asked together, and errors."""

from __future__ import annotations

import base64
import difflib
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import orjson

from components.serving.requests import Arrays
from trainer_module.errors import DataError

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")

_AGAIN_SECONDS = b"1"
"""After which a client may come again that was told that too many wait, or nothing is loaded."""


_LONGEST_NAME = 100
"""Characters of a name that are shown, and compared with others."""


class RequestError(Exception):
    """A request that is not answered; `status` is the HTTP status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def unknown_name(where: str, name: str, known: Iterable[str]) -> RequestError:
    """Returns the error for a name that the model does not know."""
    names, name = list(known), name[:_LONGEST_NAME]
    near = difflib.get_close_matches(name, names, n=1)  # Which takes long for long names.
    hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(sorted(names))}."
    return RequestError(f"{where} has {name!r}, which the model does not take; {hint}")


ID_HEADER = "X-Request-Id"
HEADER = ID_HEADER.lower().encode()
"""As headers of requests and answers have it."""
_GOOD = re.compile(rb"[\x21-\x7e]{1,200}")
"""An id is one word of ASCII; another one is not taken, and the answer shows the one that was
made."""

request_id: ContextVar[bytes] = ContextVar("request_id", default=b"")
"""Of the request that is being answered."""


def choose_id(given: bytes) -> bytes:
    """Returns the id of a request, for what its header says."""
    return given if given and _GOOD.fullmatch(given) else os.urandom(16).hex().encode()


def identify(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Gives the request that is being answered its id.

    Args:
      headers: of the request.

    Returns:
      The header that says so in the answer.
    """
    chosen = choose_id(next((value for name, value in headers if name == HEADER), b""))
    request_id.set(chosen)
    return HEADER, chosen


JSON, BYTES = b"application/json", b"application/octet-stream"
_LONGEST = 1000
"""Characters of a sentence that says what is wrong; it may quote what a client has sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of HTTP."""

    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Others than the type and the length of the body."""
    status: int = 200


_NO_THREAD = "can't start new thread"
"""What Python says where the system gives it none."""


def refusal(error: BaseException) -> Reply:
    """What is sent where there is no answer; what is a fault of the server's is logged.

    It is made where an error is caught, and kept in its place: an error holds the frames that it
    came through, and so the whole request, which only a search for garbage would free where one of
    the frames holds the error.
    """
    if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
        error = RequestError("there is too little memory for this now: come again later.", 503)
    if isinstance(error, RequestError | DataError):
        status = error.status if isinstance(error, RequestError) else 400
        headers = ((b"retry-after", _AGAIN_SECONDS),) if status == 503 else ()
        said = str(error)
        if len(said) > _LONGEST:
            said = f"{said[:_LONGEST]}..."
        # Half of a surrogate pair, quoted from a request, is no UTF-8.
        said = said.encode(errors="replace").decode()
        return Reply(orjson.dumps({"error": said}), headers=headers, status=status)
    logger.error("a request failed", exc_info=error)
    return Reply(orjson.dumps({"error": "the server failed; its log says more."}), status=500)


def attempt(make: Callable[..., _Made], *given: Any) -> _Made | Reply:
    """What a function makes, or what is sent where it fails."""
    try:
        return make(*given)
    except Exception as error:
        return refusal(error)


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
        """Returns the answer, of what was written of all its rows in their order."""


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
