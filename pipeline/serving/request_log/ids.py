"""The id of each request: as the client gives it, or made here; the answer says which it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextvars import ContextVar

ID_HEADER = "X-Request-Id"
_HEADER = ID_HEADER.lower().encode()
_GOOD = re.compile(rb"[\x21-\x7e]{1,200}")
"""An id is one word of ASCII; another one is not taken, and the answer shows the one that was
made."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered."""


def identify(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Gives the request that is being answered its id.

    Args:
      headers: of the request.

    Returns:
      The header that says so in the answer.
    """
    given = next((value for name, value in headers if name == _HEADER), b"")
    chosen = given if _GOOD.fullmatch(given) else os.urandom(16).hex().encode()
    request_id.set(chosen.decode())
    return _HEADER, chosen
