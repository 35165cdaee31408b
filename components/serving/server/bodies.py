"""The bodies of requests: read within limits of size and time, and parsed."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from components.serving.server.options import ServeOptions
from components.serving.server.replies import RequestError
from components.serving.server.room import Held
from trainer_module.errors import shorten

_AS_IT_IS, _PACKED = ("", "identity"), ("gzip", "x-gzip", "deflate")
"""What Content-Encoding may say."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""Has zlib find out which of them it is; deflate means the latter."""
_UNPACKED_BYTES = 4 << 20
"""That are unpacked at once."""
_SHOWN = 40
"""Characters of an encoding that are shown."""

MOST_DIGITS = 18
"""Of the length of anything."""


def read_length(header: bytes) -> int | None:
    """A length as a header gives it; None if that is none."""
    return int(header) if header.isdigit() and len(header) <= MOST_DIGITS else None


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, options: ServeOptions, held: Held
) -> bytes:
    """All of a body.

    Args:
      headers: of the request.
      receive: gives the parts of the body.
      options: have the limits.
      held: takes room for the body as it comes.

    Raises:
      RequestError: it is too large, too slow, in an encoding that is not taken, or one too many.
      ClientDisconnect: it does not come any more.
    """
    encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if encoding not in _AS_IT_IS + _PACKED:
        raise RequestError(
            f"a body in {encoding[:_SHOWN]} is not taken: right are gzip and deflate, or send it as"
            " it is.",
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
                held.take(len(parts[-1]))
                is_whole = not message.get("more_body", False)
    except TimeoutError:
        raise RequestError(
            f"the body did not come within {options.body_seconds:g} seconds.", 408
        ) from None
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if encoding in _AS_IT_IS:
        return body
    content = await _unpack(body, options, held)
    held.give_back(len(body))
    return content


async def _unpack(body: bytes, options: ServeOptions, held: Held) -> bytes:
    """A body that is sent in gzip or deflate, of which no more is unpacked than it may have."""
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    parts: list[bytes] = []
    size = 0
    while not unpacker.eof and (body or not parts):
        try:
            part = await asyncio.to_thread(unpacker.decompress, body, _UNPACKED_BYTES)
        except zlib.error as error:
            raise RequestError(
                f"the body is not what its Content-Encoding says: {error}."
            ) from None
        parts.append(part)
        size += len(part)
        if size > options.max_bytes:
            raise _too_large(options)
        held.take(len(part))
        body = unpacker.unconsumed_tail
    if not unpacker.eof or unpacker.unused_data:
        raise RequestError("the body is not what its Content-Encoding says: it ends elsewhere.")
    return b"".join(parts)


def _too_large(options: ServeOptions) -> RequestError:
    return RequestError(
        f"the body is larger than {options.max_bytes:,} bytes: send fewer rows at once.", 413
    )


def parse_json(body: bytes) -> Any:
    """A body as JSON, in which NaN stands for a missing number, as TF Serving has it.

    Raises:
      RequestError: it is none, or too deep.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body and b"Infinity" not in body:
            raise RequestError(f"the body is no JSON: {error}.") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {shorten(error)}.") from None
