"""What is sent to whoever asked."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import orjson

from components.serving.server.errors import RequestError, status_and_headers
from trainer_module.errors import DataError

logger = logging.getLogger(__name__)

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
        status, headers = status_and_headers(error)
        encoded = tuple((name.encode(), value.encode()) for name, value in headers.items())
        said = str(error)
        if len(said) > _LONGEST:
            said = f"{said[:_LONGEST]}..."
        # Half of a surrogate pair, quoted from a request, is no UTF-8.
        said = said.encode(errors="replace").decode()
        return Reply(orjson.dumps({"error": said}), headers=encoded, status=status)
    logger.error("a request failed", exc_info=error)
    return Reply(orjson.dumps({"error": "the server failed; its log says more."}), status=500)
