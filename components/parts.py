"""Makes the parts of a whole, of which each may fail alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Parts:
    """The parts of a whole, such as an explanation; a part that fails is reported and left out."""

    def __init__(self, whole: str, report_failure: Callable[[str, Exception], None]) -> None:
        """Stores the arguments; makes nothing.

        Args:
          whole: the name of the whole in the log.
          report_failure: receives the name of each part that fails, and the error.
        """
        self._whole, self._report_failure = whole, report_failure

    def make(self, part: str, make: Callable[[], _T], default: _T) -> _T:
        """Returns a part, or the default if making the part raises an error."""
        try:
            return make()
        except Exception as error:  # Models, files and data may raise any error.
            logger.warning("the %s lacks %s", self._whole, part, exc_info=True)
            self._report_failure(part, error)
            return default
