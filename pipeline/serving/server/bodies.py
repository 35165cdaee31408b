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

from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.options import ServeOptions

_AS_IT_IS, _PACKED = ("", "identity"), ("gzip", "x-gzip", "deflate")
"""What Content-Encoding may say."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""Has zlib find out which of them it is; deflate means the latter."""

MOST_DIGITS = 18
"""Of the length of anything."""


def read_length(header: bytes) -> int | None:
    """A length as a header gives it; None if that is none."""
    return int(header) if header.isdigit() and len(header) <= MOST_DIGITS else None


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, options: ServeOptions
) -> bytes:
    """All of a body.

    Args:
      headers: of the request.
      receive: gives the parts of the body.
      options: have the limits.

    Raises:
      RequestError: it is too large, too slow, or in an encoding that is not taken.
      ClientDisconnect: it does not come any more.
    """
    encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if encoding not in _AS_IT_IS + _PACKED:
        raise RequestError(
            f"a body in {encoding} is not taken: right are gzip and deflate, or send it as it is.",
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
                is_whole = not message.get("more_body", False)
    except TimeoutError:
        raise RequestError(
            f"the body did not come within {options.body_seconds:g} seconds.", 408
        ) from None
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    return body if encoding in _AS_IT_IS else await asyncio.to_thread(_unpack, body, options)


def _unpack(body: bytes, options: ServeOptions) -> bytes:
    """A body that is sent in gzip or deflate, of which no more is unpacked than it may have."""
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        content = unpacker.decompress(body, options.max_bytes + 1)
    except zlib.error as error:
        raise RequestError(f"the body is not what its Content-Encoding says: {error}.") from None
    if len(content) > options.max_bytes:
        raise _too_large(options)
    if not unpacker.eof or unpacker.unused_data:
        raise RequestError("the body is not what its Content-Encoding says: it ends elsewhere.")
    return content


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
        raise RequestError(f"the body is no JSON: {str(error)[:200]}.") from None
