"""Responses of the server: predictions, which are serialised once per batch, and errors."""

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
from components.serving.top_classes import keep_top_classes
from trainer_module.errors import DataError

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_RETRY_SECONDS = b"1"
"""The value of Retry-After, in seconds, in responses with status 503."""


_MAX_NAME_CHARS = 100
"""The number of characters to which a client's name is shortened before it is compared and shown.
"""


class RequestError(Exception):
    """An error of a request, which the client caused or may retry. `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def unknown_name(where: str, name: str, known_names: Iterable[str]) -> RequestError:
    """Returns the error for an input that the model does not have, with a suggestion.

    Args:
      where: the part of the request that has the name.
    """
    # The comparison takes long for long names, so the name is shortened first.
    names, name = list(known_names), name[:_MAX_NAME_CHARS]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(sorted(names))}."
    return RequestError(f"{where} has {name!r}, which the model does not take; {hint}")


ID_HEADER = "X-Request-Id"
HEADER = ID_HEADER.lower().encode()
"""The header of the request id, in the lower case of ASGI."""
_VALID_ID = re.compile(rb"[\x21-\x7e]{1,200}")
"""The pattern of a valid id: 1 to 200 ASCII characters without spaces. An invalid id is replaced by
a new id, which the response contains."""

request_id: ContextVar[bytes] = ContextVar("request_id", default=b"")
"""The id of the request in progress."""


def choose_id(header: bytes) -> bytes:
    """Returns the id from a request's header, or a new id if the header is missing or invalid."""
    return header if header and _VALID_ID.fullmatch(header) else os.urandom(16).hex().encode()


def identify(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Sets `request_id` for the request in progress.

    Returns:
      The response header with the id.
    """
    new_id = choose_id(next((value for name, value in headers if name == HEADER), b""))
    request_id.set(new_id)
    return HEADER, new_id


JSON, BYTES = b"application/json", b"application/octet-stream"
_MAX_MESSAGE_CHARS = 1000
"""The most characters of an error message. Messages may quote long names or values of a client."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response of the HTTP server."""

    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """The headers in addition to the type and the length of the body."""
    status: int = 200


_NO_THREAD = "can't start new thread"
"""Python's message when the system cannot start a thread."""


def error_reply(error: BaseException) -> Reply:
    """Returns the response for an error. Errors of the server itself are logged.

    Callers that catch an error store this response, and not the error. An error refers to the stack
    frames that it passed, and the frames refer to the whole request. If a frame referred to the
    error, only garbage collection would free the request.
    """
    if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
        error = RequestError("the server is out of memory: try again later.", 503)
    if isinstance(error, RequestError | DataError):
        status = error.status if isinstance(error, RequestError) else 400
        headers = ((b"retry-after", _RETRY_SECONDS),) if status == 503 else ()
        message = str(error)
        if len(message) > _MAX_MESSAGE_CHARS:
            message = f"{message[:_MAX_MESSAGE_CHARS]}..."
        # A message may quote half a surrogate pair, which cannot be encoded as UTF-8.
        message = message.encode(errors="replace").decode()
        return Reply(orjson.dumps({"error": message}), headers=headers, status=status)
    logger.error("a request failed", exc_info=error)
    return Reply(
        orjson.dumps({"error": "internal server error; see the log of the server."}), status=500
    )


def attempt(function: Callable[..., _Result], *arguments: Any) -> _Result | Reply:
    """Returns the result of a function, or the response for its error."""
    try:
        return function(*arguments)
    except Exception as error:
        return error_reply(error)


RowTexts = list[bytes]
"""The JSON of each row."""
_TEXT_BYTES = 64
"""The approximate size of a short text in an array, in bytes."""


@dataclass(frozen=True)
class BatchResults:
    """The outputs of the model for a batch of requests."""

    arrays: Arrays
    """The outputs by name. Each output has the shape [rows, ...]."""

    @cached_property
    def column_texts(self) -> dict[str, RowTexts]:
        """The JSON of each output of each row, by name of the output.

        Numbers have the fewest digits that identify them in their dtype, and NaN becomes null.
        Bytes become text, or base64 if the name of the output ends with `_bytes`, as in TF Serving.
        """
        return {name: _to_texts(name, values) for name, values in self.arrays.items()}

    @cached_property
    def row_texts(self) -> RowTexts:
        """The JSON of each row: an object, or the value itself if the model has only one output."""
        columns = self.column_texts
        if len(columns) == 1:
            return next(iter(columns.values()))
        keys = [orjson.dumps(name).replace(b"%", b"%%") for name in columns]
        row = b"{" + b",".join(key + b":%b" for key in keys) + b"}"
        return [row % values for values in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, slots=True)
class ResultSlice:
    """The rows of a batch's outputs that belong to one request."""

    batch: BatchResults
    rows: slice

    @property
    def arrays(self) -> Arrays:
        """The outputs by name. Each output has the shape [rows, ...]."""
        return {name: values[self.rows] for name, values in self.batch.arrays.items()}

    def top(self, top_k: int | None) -> ResultSlice:
        """Returns the rows with only their most probable classes, or unchanged if `top_k` is None.

        Raises:
          DataError: the model does not predict classes.
        """
        if top_k is None:
            return self
        return ResultSlice(BatchResults(keep_top_classes(self.arrays, top_k)), slice(None))

    @property
    def column_texts(self) -> dict[str, RowTexts]:
        """The JSON of each output of each row, by name of the output."""
        return {name: texts[self.rows] for name, texts in self.batch.column_texts.items()}

    @property
    def row_texts(self) -> RowTexts:
        """The JSON of each row."""
        return self.batch.row_texts[self.rows]


def read_top_k(value: Any) -> int | None:
    """Returns the number of classes that a request asks for, or None for all classes.

    Raises:
      RequestError: the value is not a whole number of at least 1.
    """
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise RequestError(
            f"`top_k` is {str(value)[:30]!r}, expected a whole number of at least 1."
        )
    return value


class ResponseFormat(Protocol):
    """The format of a response. Instances can be pickled."""

    def part(self, output: ResultSlice) -> Any:
        """Returns the serialised outputs of some rows of a request."""

    def reply(self, parts: Sequence[Any]) -> Reply:
        """Returns the response from the parts with the serialised outputs, in the order of rows."""


def size_of_part(part: Any) -> int:
    """Returns the approximate size in bytes of outputs that a `ResponseFormat` has serialised."""
    if isinstance(part, bytes):
        return len(part)
    if isinstance(part, np.ndarray):
        return part.size * _TEXT_BYTES if part.dtype == object else part.nbytes
    return sum(map(size_of_part, part.values()))


def _to_texts(name: str, values: np.ndarray) -> RowTexts:
    if values.dtype == object:
        return _bytes_to_texts(name, values)
    if values.ndim > 2 or not values.size:
        return [_write_numbers(row) for row in values]
    written = _write_numbers(values)
    if values.ndim == 1:
        return written[1:-1].split(b",")
    return written[1:-1].replace(b"],[", b"]\n[").split(b"\n")


def _write_numbers(values: np.ndarray) -> bytes:
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _bytes_to_texts(name: str, values: np.ndarray) -> RowTexts:
    """Returns the JSON of each row. Equal values, such as classes, are serialised only once."""
    texts = {value: _to_json(name, value) for value in set(values.ravel().tolist())}
    listed = values.tolist()
    if values.ndim == 1:
        return [texts[value] for value in listed]

    def write(value: Any) -> bytes:
        if isinstance(value, list):
            return b"[%b]" % b",".join(map(write, value))
        return texts[value]

    if len(listed) > 1 and (values == values[0]).all():
        # All rows are equal, such as rows of class names, so one row is serialised.
        return [write(listed[0])] * len(listed)
    return list(map(write, listed))


def _to_json(name: str, value: bytes) -> bytes:
    if name.endswith("_bytes"):
        return orjson.dumps({"b64": base64.b64encode(value).decode()})
    return orjson.dumps(value.decode(errors="replace"))
