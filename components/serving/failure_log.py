"""Logging of the failures of a repeated task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class FailureLog:
    """Keeps a repeated task running when it fails.

    Of consecutive equal failures only the first is logged; the first success after a failure is
    logged too.
    """

    def __init__(self, logger: logging.Logger, message: str) -> None:
        """Args:
        logger: the logger of the task.
        message: the beginning of the logged message, such as "the log cannot be written".
        """
        self._logger, self._message, self._last = logger, message, ""

    @contextmanager
    def suppressed(self) -> Iterator[None]:
        """Suppresses and logs exceptions of the `with` block; logs a repeated failure only once."""
        try:
            yield
        except Exception as error:
            said, is_usual = repr(error), isinstance(error, OSError)
            if isinstance(error, OSError) and error.filename is not None:
                said = f"{error.filename}: {error.strerror}"
            if said != self._last:
                self._logger.error("%s: %s", self._message, said, exc_info=not is_usual)
            self._last = said
        else:
            if self._last:
                self._logger.info("%s: recovered", self._message)
            self._last = ""
