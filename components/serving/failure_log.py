"""Logging of the failures of a repeated task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class FailureLog:
    """Logs the failures of a repeated task, and suppresses them so that the task continues.

    If a failure repeats, only its first occurrence is logged. The first success after a failure is
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
        """Suppresses and logs exceptions of the `with` block."""
        try:
            yield
        except Exception as error:
            # The traceback of an OSError, such as a full disk, does not help the user.
            failure, is_os_error = repr(error), isinstance(error, OSError)
            if isinstance(error, OSError) and error.filename is not None:
                failure = f"{error.filename}: {error.strerror}"
            if failure != self._last:
                self._logger.error("%s: %s", self._message, failure, exc_info=not is_os_error)
            self._last = failure
        else:
            if self._last:
                self._logger.info("%s: recovered", self._message)
            self._last = ""
