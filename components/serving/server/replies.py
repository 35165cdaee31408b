"""What is sent to whoever asked: answers under the id of their request, and errors."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

import orjson

from trainer_module.errors import DataError

logger = logging.getLogger(__name__)

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
    """The error for a name that the model does not know."""
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
    """The id of a request, for what its header says."""
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
