"""What a request is refused with, a status and a sentence, and what outlives other errors."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

_AGAIN_SECONDS = "1"
"""After which a client may come again that was told that too many wait, or nothing is loaded."""


_LONGEST_NAME = 100
"""Characters of a name that are shown, and compared with others."""


class RequestError(Exception):
    """A request that is not answered; `status` is the HTTP status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Failing:
    """Keeps what is done again and again going, whatever fails; logs each failure once in a row."""

    def __init__(self, what: str) -> None:
        """Args:
        what: is done, for the log.
        """
        self._what, self._last = what, ""

    @contextmanager
    def survived(self) -> Iterator[None]:
        """Logs what fails in the `with` block, unless the last time failed alike."""
        try:
            yield
        except Exception as error:
            if repr(error) != self._last:
                logger.exception("%s failed, and is tried again", self._what)
            self._last = repr(error)
        else:
            self._last = ""


def status_and_headers(error: Exception) -> tuple[int, dict[str, str]]:
    """Those of the answer to a request that went wrong."""
    status = error.status if isinstance(error, RequestError) else 400
    return status, {"retry-after": _AGAIN_SECONDS} if status == 503 else {}


def unknown_name(where: str, name: str, known: Iterable[str]) -> RequestError:
    """The error for a name that the model does not know."""
    names, name = list(known), name[:_LONGEST_NAME]
    near = difflib.get_close_matches(name, names, n=1)  # Which takes long for long names.
    hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(sorted(names))}."
    return RequestError(f"{where} has {name!r}, which the model does not take; {hint}")
