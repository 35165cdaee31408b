"""The bodies of requests: read within limits of size and time, and parsed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.options import ServeOptions


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, options: ServeOptions
) -> bytes:
    """All of a body.

    Args:
      headers: of the request.
      receive: gives the parts of the body.
      options: have the limits.

    Raises:
      RequestError: it is too large, too slow or encoded.
      ClientDisconnect: it does not come any more.
    """
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if encoding != "identity":
        raise RequestError(f"a body in {encoding} is not taken: send it as it is.", 415)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > options.max_bytes:
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
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
