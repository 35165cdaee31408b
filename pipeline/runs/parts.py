"""Reads parts of the details of a run, of which each may fail on its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pipeline.records.credentials import hide_credentials

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class PartReader:
    """A reader of parts that notes the parts which cannot be read."""

    def __init__(self, notes: list[str]) -> None:
        """Stores the arguments; reads nothing.

        Args:
          notes: the list that receives a note for each part that cannot be read.
        """
        self._notes = notes

    def read(self, part: str, read: Callable[[], _T], default: _T) -> _T:
        """Returns a part, or the default with a note if the part cannot be read.

        Args:
          part: the name of the part in the note.
          read: returns the part.
          default: the value of a part that cannot be read.
        """
        try:
            return read()
        except Exception as error:
            logger.warning("The report lacks %s", part, exc_info=True)
            reason = hide_credentials(f"{type(error).__name__}: {error}")
            self._notes.append(f"{part} cannot be read: {reason}"[:300])
            return default
