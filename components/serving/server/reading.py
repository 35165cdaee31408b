"""Reading of prediction requests: path, body within limits, memory, and inputs.

Imports no TensorFlow.
"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from components.serving.server.options import ServeOptions
from components.serving.server.protocols import open_inference, rest
from components.serving.server.protocols.values import RequestInputs, parse_json, row_count
from components.serving.server.replies import RequestError, ResponseFormat
from trainer_module.export.interface import ModelInterface

_PATHS = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r":(?P<verb>predict|classify|regress)"
    r"|/v2/models/(?P<name2>[^/]+)(/versions/(?P<version2>[^/]+))?/infer"
)
_KNOWN_PATHS = 128


@dataclass(frozen=True, slots=True)
class PredictionPath:
    """The model and version of a prediction request, from its path."""

    name: str
    version: str | None
    label: str | None
    verb: str | None
    """The verb of TF Serving; None for Open Inference."""


@functools.lru_cache(_KNOWN_PATHS)
def read_path(path: str) -> PredictionPath | None:
    """Returns the parsed path of a prediction request; None for other paths."""
    found = _PATHS.fullmatch(path)
    if found is None:
        return None
    if found["verb"] is None:
        return PredictionPath(found["name2"], found["version2"], None, None)
    return PredictionPath(found["name"], found["version"], found["label"], found["verb"])


@functools.lru_cache(_KNOWN_PATHS)
def read_plain_url(url: bytes) -> PredictionPath | None:
    """Returns the parsed path of a request line; None unless it is a prediction in plain ASCII."""
    if not url.isascii() or b"%" in url or b"?" in url or b"#" in url:
        return None
    return read_path(url.decode())


_IDENTITY, _COMPRESSED = ("", "identity"), ("gzip", "x-gzip", "deflate")
"""The values of Content-Encoding that are accepted."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""The zlib option that detects gzip or zlib; `deflate` means zlib."""
_DECOMPRESSED_BYTES = 4 << 20
"""The bytes that are decompressed at a time."""
_SHOWN = 40
"""The most characters of an invalid header that a message shows."""

MOST_DIGITS = 18
"""The most digits of a length in a header."""


def read_length(header: bytes) -> int | None:
    """Returns the length in a header; None if it is invalid."""
    return int(header) if header.isdigit() and len(header) <= MOST_DIGITS else None


SMALL_BYTES = 1 << 20
"""The size up to which a request may use all memory; larger ones share a part of it."""
_SHARE_OF_LARGE = 0.75
_COUNTED_BYTES = 1 << 14
"""The size below which a body is not scanned, as parsing it is faster."""
_MAX_BYTES_PER_BYTE = 16
"""The assumed memory per byte of an unscanned body."""
_BYTES_PER_SIGN = {b",": 48, b"[": 96, b"{": 256}
"""The bytes that the parser and Python objects take for a comma, a list and an object."""
_BYTES_PER_TEXT_BYTE = 4
"""The bytes that Python takes for a byte of a text that contains a rare character."""
_QUOTE, _PIECE_BYTES = ord('"'), 1 << 20


class MemoryBudget:
    """A counter of the memory of all requests in progress; used by the event loop's thread only."""

    def __init__(self, limit: int = sys.maxsize) -> None:
        """Args:
        limit: the most bytes for all requests.
        """
        self._limit = limit
        self.taken = 0

    def take(self, size: int, reserved: int = 0) -> None:
        """Reserves memory for a request.

        Args:
          size: the bytes to reserve.
          reserved: the bytes that the same request has reserved already.

        Raises:
          RequestError: the limit is reached; the status is 503.
        """
        is_small = reserved + size <= SMALL_BYTES
        limit = self._limit if is_small else int(self._limit * _SHARE_OF_LARGE)
        if self.taken + size > limit:
            raise RequestError(
                f"requests of {self.taken:,} bytes are in progress: try again later.", 503
            )
        self.taken += size

    def release(self, size: int) -> None:
        """Releases the memory of a request."""
        self.taken -= size


class Reservation:
    """The memory of one request, reserved piece by piece and released at the end of a `with`."""

    def __init__(self, room: MemoryBudget) -> None:
        self._room, self.size = room, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release(self.size)

    def take(self, size: int) -> None:
        """Reserves more memory; raises RequestError as `MemoryBudget.take` does."""
        self._room.take(size, self.size)
        self.size += size

    def release(self, size: int) -> None:
        """Releases some of the memory."""
        self._room.release(size)
        self.size -= size


def memory_of(body: bytes) -> int:
    """Returns an upper estimate of the memory of a parsed body.

    Commas and brackets within texts are counted too. A large body is not scanned.
    """
    if len(body) <= _COUNTED_BYTES:
        return _MAX_BYTES_PER_BYTE * len(body)
    if len(body) > SMALL_BYTES:
        return len(body)
    return len(body) + sum(body.count(sign) * size for sign, size in _BYTES_PER_SIGN.items())


def memory_of_json(body: bytes) -> int:
    """Returns an estimate of the memory of parsed JSON that ignores texts; ten times as slow."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"--").replace(b'\\"', b"--")
    signs, is_text, size = np.frombuffer(body, np.uint8), False, _BYTES_PER_TEXT_BYTE * len(body)
    for start in range(0, len(signs), _PIECE_BYTES):
        piece = signs[start : start + _PIECE_BYTES]
        are_texts = np.logical_xor.accumulate(piece == _QUOTE) ^ is_text
        is_text = bool(are_texts[-1])
        outside = piece[~are_texts]
        size += sum(int((outside == ord(s)).sum()) * of for s, of in _BYTES_PER_SIGN.items())
    return size


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    options: ServeOptions,
    reservation: Reservation,
) -> bytes:
    """Receives the whole body of a request.

    Args:
      headers: the headers of the request.
      receive: the ASGI function that returns parts of the body.
      options: the options with the limits.
      reservation: reserves memory for the body as it arrives.

    Raises:
      RequestError: the body is too large, too slow, in an unknown encoding, or the memory limit is
        reached.
      ClientDisconnect: the client has gone.
    """
    encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if encoding not in _IDENTITY + _COMPRESSED:
        raise RequestError(
            f"the Content-Encoding {encoding[:_SHOWN]} is not supported: use gzip or deflate, or"
            " send the body uncompressed.",
            415,
        )
    length = read_length(headers.get(b"content-length", b""))
    if length is not None and length > options.max_bytes:
        raise _too_large(options)
    parts, size, is_whole = [], 0, False
    try:
        async with asyncio.timeout(options.body_seconds):
            while not is_whole:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > options.max_bytes:
                    raise _too_large(options)
                reservation.take(len(parts[-1]))
                is_whole = not message.get("more_body", False)
    except TimeoutError:
        raise RequestError(
            f"the body did not arrive within {options.body_seconds:g} seconds.", 408
        ) from None
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if encoding in _IDENTITY:
        return body
    content = await _decompress(body, options, reservation)
    reservation.release(len(body))
    return content


async def _decompress(body: bytes, options: ServeOptions, reservation: Reservation) -> bytes:
    """Returns a decompressed body; stops when the size limit is exceeded."""
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    parts: list[bytes] = []
    size = 0
    while not unpacker.eof and (body or not parts):
        try:
            part = await asyncio.to_thread(unpacker.decompress, body, _DECOMPRESSED_BYTES)
        except zlib.error as error:
            raise RequestError(f"the body does not match its Content-Encoding: {error}.") from None
        parts.append(part)
        size += len(part)
        if size > options.max_bytes:
            raise _too_large(options)
        reservation.take(len(part))
        body = unpacker.unconsumed_tail
    if not unpacker.eof or unpacker.unused_data:
        raise RequestError(
            "the body does not match its Content-Encoding: the compressed data ends elsewhere."
        )
    return b"".join(parts)


def _too_large(options: ServeOptions) -> RequestError:
    return RequestError(
        f"the body is larger than {options.max_bytes:,} bytes: send fewer rows per request.", 413
    )


class PredictionRequest(NamedTuple):
    """A prediction request as received."""

    path: PredictionPath
    headers: Mapping[bytes, bytes]
    body: bytes
    name: bytes
    """The id of the request."""


class ReadRequest(NamedTuple):
    """The parsed content of a prediction request."""

    signature: str
    inputs: RequestInputs
    form: ResponseFormat
    rows: int


def read_request(
    request: PredictionRequest,
    number: int,
    interface: ModelInterface,
    most_rows: int,
) -> ReadRequest:
    """Returns the signature, inputs and response format of a request.

    Args:
      request: the received request.
      number: the version's number.
      interface: the interface of the version's model.
      most_rows: the most rows that a request may have.

    Raises:
      RequestError: the request is invalid, or has too many rows.
    """
    path, body = request.path, request.body
    asked: tuple[str, RequestInputs, ResponseFormat]
    if path.verb is None:
        end = json_length(request)
        asked = open_inference.read_request(body, end, interface, path.name, number)
    else:
        asked = rest.read_request(path.verb, parse_json(body), interface)
    signature, inputs, form = asked
    rows = row_count(inputs)
    if rows > most_rows:
        raise RequestError(
            f"the request has {rows:,} rows, expected at most {most_rows:,} per request.", 413
        )
    return ReadRequest(signature, inputs, form, rows)


def json_length(request: PredictionRequest) -> int:
    """Returns the length of the JSON in a body; binary tensors of Open Inference may follow.

    Raises:
      RequestError: the header with the length is invalid.
    """
    name = open_inference.HEADER_LENGTH.encode()
    header = request.headers.get(name) if request.path.verb is None else None
    length = len(request.body) if header is None else read_length(header)
    if length is None or length > len(request.body):
        said = (header or b"")[:_SHOWN].decode("latin-1")
        raise RequestError(f"{open_inference.HEADER_LENGTH} is {said!r}, expected a length.")
    return length
