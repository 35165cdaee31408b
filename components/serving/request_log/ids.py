"""The id of each request: as the client gives it, or made here; the answer says which it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextvars import ContextVar

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
