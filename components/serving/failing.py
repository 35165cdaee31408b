"""What is done again and again, and may fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Failing:
    """Keeps something going, whatever fails; logs each failure once in a row, and their end."""

    def __init__(self, logger: logging.Logger, says: str) -> None:
        """Args:
        logger: of who does it.
        says: what is wrong then.
        """
        self._logger, self._says, self._last = logger, says, ""

    @contextmanager
    def survived(self) -> Iterator[None]:
        """Logs what fails in the `with` block, unless the last time failed alike."""
        try:
            yield
        except Exception as error:
            said, is_usual = repr(error), isinstance(error, OSError)
            if isinstance(error, OSError) and error.filename is not None:
                said = f"{error.filename}: {error.strerror}"
            if said != self._last:
                self._logger.error("%s: %s", self._says, said, exc_info=not is_usual)
            self._last = said
        else:
            if self._last:
                self._logger.info("%s: that is over", self._says)
            self._last = ""
