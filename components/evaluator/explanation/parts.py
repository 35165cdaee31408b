"""Computes the parts of an explanation, of which each may fail alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from trainer_module.errors import shorten

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Parts:
    """The parts of an explanation, and the failures of parts."""

    def __init__(self, failures: dict[str, str]) -> None:
        """Stores the dict for failures.

        Args:
          failures: the dict that receives the reason for each part that cannot be computed.
        """
        self._failures = failures

    def compute(self, part: str, compute: Callable[[], _T], default: _T) -> _T:
        """Returns a part, or the default if the part cannot be computed.

        Args:
          part: the name of the part in the report.
          compute: returns the part.
          default: the value of a part that cannot be computed.
        """
        try:
            return compute()
        except Exception as error:  # The model and its data may raise any error.
            logger.warning("the explanation lacks the %s", part, exc_info=True)
            self._failures[part] = f"{type(error).__name__}: {shorten(error)}"
            return default
