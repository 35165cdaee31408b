"""The bodies of requests: read within limits of size and time, and parsed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
from starlette.requests import Request

from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.options import ServeOptions


async def read_body(request: Request, options: ServeOptions) -> bytes:
    """All of a body.

    Raises:
      RequestError: it is too large, too slow or encoded.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise RequestError(f"a body in {encoding} is not taken: send it as it is.", 415)
    too_large = RequestError(
        f"the body is larger than {options.max_bytes:,} bytes: send fewer rows at once.", 413
    )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > options.max_bytes:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(options.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > options.max_bytes:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise RequestError(
            f"the body did not come within {options.body_seconds:g} seconds.", 408
        ) from None
    return b"".join(parts)


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
