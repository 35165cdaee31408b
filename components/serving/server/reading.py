"""Reading of prediction requests: the path, the body, the inputs, and the limits of memory.

This module does not import TensorFlow.
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
_CACHED_PATHS = 128


@dataclass(frozen=True, slots=True)
class PredictionPath:
    """The model and version of a prediction request, from its path."""

    name: str
    version: str | None
    label: str | None
    verb: str | None
    """The verb of TF Serving, or None for Open Inference."""


@functools.lru_cache(_CACHED_PATHS)
def read_path(path: str) -> PredictionPath | None:
    """Returns the parsed path of a prediction request, or None for any other path."""
    match = _PATHS.fullmatch(path)
    if match is None:
        return None
    if match["verb"] is None:
        return PredictionPath(match["name2"], match["version2"], None, None)
    return PredictionPath(match["name"], match["version"], match["label"], match["verb"])


@functools.lru_cache(_CACHED_PATHS)
def read_plain_url(url: bytes) -> PredictionPath | None:
    """Returns the parsed URL of a prediction request.

    Returns None for other URLs, and for URLs with a query, a fragment, or encoded characters.
    """
    if not url.isascii() or b"%" in url or b"?" in url or b"#" in url:
        return None
    return read_path(url.decode())


_IDENTITY, _COMPRESSED = ("", "identity"), ("gzip", "x-gzip", "deflate")
"""The values of Content-Encoding that are accepted."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""The zlib option that detects the formats gzip and zlib. HTTP's name for zlib is `deflate`."""
_DECOMPRESSED_BYTES = 4 << 20
"""The bytes that are decompressed at a time."""
_SHOWN_CHARS = 40
"""The most characters of an invalid header that a message shows."""

MAX_DIGITS = 18
"""The most digits of a length in a header."""


def read_length(header: bytes) -> int | None:
    """Returns the length in a header, or None if the header is invalid."""
    return int(header) if header.isdigit() and len(header) <= MAX_DIGITS else None


SMALL_BYTES = 1 << 20
"""The most bytes of a small request. Small requests may use all memory, and larger requests only a
share."""
_SHARE_OF_LARGE = 0.75
"""The share of the memory that large requests may use."""
_UNSCANNED_BYTES = 1 << 14
"""The size up to which a body is not scanned to estimate its memory, as parsing it is faster."""
_MAX_BYTES_PER_BYTE = 16
"""The assumed memory per byte of a body that is not scanned."""
_BYTES_PER_CHAR = {b",": 48, b"[": 96, b"{": 256}
"""The bytes of memory for each comma, list and object in the JSON."""
_BYTES_PER_TEXT_BYTE = 4
"""The bytes of memory for each byte of a text. Python stores a text with a rare character, such as
an emoji, in 4 bytes per character."""
_QUOTE, _PIECE_BYTES = ord('"'), 1 << 20


class MemoryBudget:
    """A counter of the memory of all requests in progress.

    Only the thread of the event loop uses the counter.
    """

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self.taken = 0

    def take(self, size: int, reserved: int = 0) -> None:
        """Reserves memory for a request.

        Args:
          reserved: the bytes that the same request has reserved already.

        Raises:
          RequestError: the limit is reached. The status is 503.
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
    """The memory of one request, which is released at the end of a `with` block."""

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory, self.size = memory, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release(self.size)

    def take(self, size: int) -> None:
        """Reserves more memory. Raises RequestError if the limit is reached."""
        self._memory.take(size, self.size)
        self.size += size

    def release(self, size: int) -> None:
        """Releases some of the memory."""
        self._memory.release(size)
        self.size -= size


def estimate_memory(body: bytes) -> int:
    """Returns an upper estimate of the memory of a parsed body, in bytes.

    Commas and brackets within texts are counted too. For a body of more than `SMALL_BYTES`, the
    result is only its size, as `estimate_json_memory` estimates its memory in the child process.
    """
    if len(body) <= _UNSCANNED_BYTES:
        return _MAX_BYTES_PER_BYTE * len(body)
    if len(body) > SMALL_BYTES:
        return len(body)
    return len(body) + sum(body.count(char) * size for char, size in _BYTES_PER_CHAR.items())


def estimate_json_memory(body: bytes) -> int:
    """Returns an estimate of the memory of parsed JSON, in bytes.

    Commas and brackets within texts are not counted. This takes ten times as long as
    `estimate_memory`.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"--").replace(b'\\"', b"--")
    chars, is_in_text = np.frombuffer(body, np.uint8), False
    size = _BYTES_PER_TEXT_BYTE * len(body)
    for start in range(0, len(chars), _PIECE_BYTES):
        piece = chars[start : start + _PIECE_BYTES]
        are_in_text = np.logical_xor.accumulate(piece == _QUOTE) ^ is_in_text
        is_in_text = bool(are_in_text[-1])
        outside = piece[~are_in_text]
        size += sum(int((outside == ord(c)).sum()) * n for c, n in _BYTES_PER_CHAR.items())
    return size


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    options: ServeOptions,
    reservation: Reservation,
) -> bytes:
    """Receives the whole body of a request.

    Args:
      reservation: reserves memory for the body as it arrives.

    Raises:
      RequestError: the body is too large, arrives too slowly or has an unknown encoding, or
        the memory limit is reached.
      ClientDisconnect: the client has disconnected.
    """
    encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if encoding not in _IDENTITY + _COMPRESSED:
        raise RequestError(
            f"the Content-Encoding {encoding[:_SHOWN_CHARS]} is not supported: use gzip or deflate,"
            " or send the body uncompressed.",
            415,
        )
    length = read_length(headers.get(b"content-length", b""))
    if length is not None and length > options.max_bytes:
        raise _too_large(options)
    parts, size, is_complete = [], 0, False
    try:
        async with asyncio.timeout(options.body_seconds):
            while not is_complete:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > options.max_bytes:
                    raise _too_large(options)
                reservation.take(len(parts[-1]))
                is_complete = not message.get("more_body", False)
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
    """Returns a decompressed body, or raises RequestError once its size exceeds the limit."""
    decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
    parts: list[bytes] = []
    size = 0
    while not decompressor.eof and (body or not parts):
        try:
            part = await asyncio.to_thread(decompressor.decompress, body, _DECOMPRESSED_BYTES)
        except zlib.error as error:
            raise RequestError(f"the body does not match its Content-Encoding: {error}.") from None
        parts.append(part)
        size += len(part)
        if size > options.max_bytes:
            raise _too_large(options)
        reservation.take(len(part))
        body = decompressor.unconsumed_tail
    if not decompressor.eof or decompressor.unused_data:
        raise RequestError(
            "the body does not match its Content-Encoding: the compressed data is incomplete, or"
            " further bytes follow it."
        )
    return b"".join(parts)


def _too_large(options: ServeOptions) -> RequestError:
    return RequestError(
        f"the body is larger than {options.max_bytes:,} bytes: send fewer rows per request.", 413
    )


class PredictionRequest(NamedTuple):
    """A received prediction request, which has not been parsed yet."""

    path: PredictionPath
    headers: Mapping[bytes, bytes]
    body: bytes
    request_id: bytes


class ParsedRequest(NamedTuple):
    """The parsed content of a prediction request."""

    signature: str
    inputs: RequestInputs
    response_format: ResponseFormat
    rows: int


def read_request(
    request: PredictionRequest,
    number: int,
    interface: ModelInterface,
    max_rows: int,
) -> ParsedRequest:
    """Returns the signature, inputs and response format of a request.

    Raises:
      RequestError: the request is invalid, or has too many rows.
    """
    path, body = request.path, request.body
    parsed: tuple[str, RequestInputs, ResponseFormat]
    if path.verb is None:
        end = json_length(request)
        parsed = open_inference.read_request(body, end, interface, path.name, number)
    else:
        parsed = rest.read_request(path.verb, parse_json(body), interface)
    signature, inputs, response_format = parsed
    rows = row_count(inputs)
    if rows > max_rows:
        raise RequestError(
            f"the request has {rows:,} rows, expected at most {max_rows:,} per request.", 413
        )
    return ParsedRequest(signature, inputs, response_format, rows)


def json_length(request: PredictionRequest) -> int:
    """Returns the length of the JSON in a body. Binary tensors of Open Inference may follow it.

    Raises:
      RequestError: the header with the length is invalid.
    """
    name = open_inference.HEADER_LENGTH.encode()
    header = request.headers.get(name) if request.path.verb is None else None
    length = len(request.body) if header is None else read_length(header)
    if length is None or length > len(request.body):
        shown = (header or b"")[:_SHOWN_CHARS].decode("latin-1")
        raise RequestError(
            f"{open_inference.HEADER_LENGTH} is {shown!r}, expected the number of bytes of the"
            f" JSON, at most {len(request.body)}."
        )
    return length
