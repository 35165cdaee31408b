"""Responses of the server: answers, serialised once per batch, and errors."""

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

_Result = TypeVar("_Result")

_RETRY_SECONDS = b"1"
"""The value of Retry-After, in seconds, in responses with status 503."""


_LONGEST_NAME = 100
"""The most characters of a name that are shown, and compared with others."""


class RequestError(Exception):
    """An error that a client caused or may retry after; `status` is its HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def unknown_name(where: str, name: str, known_names: Iterable[str]) -> RequestError:
    """Returns the error for a name that the model does not have, with a suggestion."""
    names, name = list(known_names), name[:_LONGEST_NAME]
    near = difflib.get_close_matches(name, names, n=1)  # Slow for long names, hence the limit.
    hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(sorted(names))}."
    return RequestError(f"{where} has {name!r}, which the model does not take; {hint}")


ID_HEADER = "X-Request-Id"
HEADER = ID_HEADER.lower().encode()
"""The header of the request id, as ASGI has it."""
_VALID_ID = re.compile(rb"[\x21-\x7e]{1,200}")
"""The pattern of an acceptable id: one word of ASCII. Any other id is replaced by a new one, which
the response shows."""

request_id: ContextVar[bytes] = ContextVar("request_id", default=b"")
"""The id of the request in progress."""


def choose_id(header: bytes) -> bytes:
    """Returns the id from a request's header, or a new one if that is missing or invalid."""
    return header if header and _VALID_ID.fullmatch(header) else os.urandom(16).hex().encode()


def identify(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Sets `request_id` for the request in progress.

    Args:
      headers: the headers of the request.

    Returns:
      The response header with the id.
    """
    chosen = choose_id(next((value for name, value in headers if name == HEADER), b""))
    request_id.set(chosen)
    return HEADER, chosen


JSON, BYTES = b"application/json", b"application/octet-stream"
_LONGEST = 1000
"""The most characters of an error message, which may quote a client."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response of the HTTP server."""

    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """The headers besides the type and the length of the body."""
    status: int = 200


_NO_THREAD = "can't start new thread"
"""Python's message when the system cannot start a thread."""


def error_reply(error: BaseException) -> Reply:
    """Returns the response for an error; errors of the server itself are logged.

    The response is created where the error is caught, and kept in its place: an error refers to the
    frames that it passed, and these refer to the whole request. If one of the frames refers to the
    error, only garbage collection would free them.
    """
    if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
        error = RequestError("the server is out of memory: try again later.", 503)
    if isinstance(error, RequestError | DataError):
        status = error.status if isinstance(error, RequestError) else 400
        headers = ((b"retry-after", _RETRY_SECONDS),) if status == 503 else ()
        said = str(error)
        if len(said) > _LONGEST:
            said = f"{said[:_LONGEST]}..."
        # A message may quote half a surrogate pair, which is not encodable as UTF-8.
        said = said.encode(errors="replace").decode()
        return Reply(orjson.dumps({"error": said}), headers=headers, status=status)
    logger.error("a request failed", exc_info=error)
    return Reply(
        orjson.dumps({"error": "internal server error; see the log of the server."}), status=500
    )


def attempt(make: Callable[..., _Result], *given: Any) -> _Result | Reply:
    """Returns the result of a function, or the response for its error."""
    try:
        return make(*given)
    except Exception as error:
        return error_reply(error)


Texts = list[bytes]
"""The JSON of each row."""
_TEXT_BYTES = 64
"""The approximate size in bytes of a short text in an array."""


@dataclass(frozen=True)
class BatchResults:
    """The outputs of the model for a batch of requests."""

    arrays: Arrays
    """The outputs by name, [rows, ...] each."""

    @cached_property
    def column_texts(self) -> dict[str, Texts]:
        """The JSON of each output of each row, by name of the output.

        Numbers have the fewest digits that identify them in their dtype; NaN is null. Bytes are
        text, or base64 if the name of the output ends with `_bytes`, as in TF Serving.
        """
        return {name: _to_texts(name, values) for name, values in self.arrays.items()}

    @cached_property
    def row_texts(self) -> Texts:
        """The JSON of each row: an object, or the value itself if there is only one output."""
        columns = self.column_texts
        if len(columns) == 1:
            return next(iter(columns.values()))
        keys = [orjson.dumps(name).replace(b"%", b"%%") for name in columns]
        row = b"{" + b",".join(key + b":%b" for key in keys) + b"}"
        return [row % values for values in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, slots=True)
class ResultSlice:
    """The slice of a batch's outputs that belongs to one request."""

    batch: BatchResults
    rows: slice

    @property
    def arrays(self) -> Arrays:
        """The outputs by name, [rows, ...] each."""
        return {name: values[self.rows] for name, values in self.batch.arrays.items()}

    @property
    def column_texts(self) -> dict[str, Texts]:
        """The JSON of each output of each row, by name of the output."""
        return {name: texts[self.rows] for name, texts in self.batch.column_texts.items()}

    @property
    def row_texts(self) -> Texts:
        """The JSON of each row."""
        return self.batch.row_texts[self.rows]


class ResponseFormat(Protocol):
    """The format of a response; instances can be pickled."""

    def part(self, answer: ResultSlice) -> Any:
        """Returns the serialised outputs of some of a request's rows."""

    def reply(self, parts: Sequence[Any]) -> Reply:
        """Returns the response, from the serialised outputs of all rows in their order."""


def size_of_part(part: Any) -> int:
    """Returns the approximate size in bytes of outputs that a `ResponseFormat` has serialised."""
    if isinstance(part, bytes):
        return len(part)
    if isinstance(part, np.ndarray):
        return part.size * _TEXT_BYTES if part.dtype == object else part.nbytes
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
    """Returns the JSON of each row; equal values, such as classes, are serialised once."""
    known = {value: _to_json(name, value) for value in set(values.ravel().tolist())}
    listed = values.tolist()
    if values.ndim == 1:
        return [known[value] for value in listed]

    def write(value: Any) -> bytes:
        if isinstance(value, list):
            return b"[%b]" % b",".join(map(write, value))
        return known[value]

    if len(listed) > 1 and (values == values[0]).all():
        return [write(listed[0])] * len(listed)  # All rows are equal, such as names of classes.
    return list(map(write, listed))


def _to_json(name: str, value: bytes) -> bytes:
    if name.endswith("_bytes"):
        return orjson.dumps({"b64": base64.b64encode(value).decode()})
    return orjson.dumps(value.decode(errors="replace"))
