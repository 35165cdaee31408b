"""The progress of a step as lines of its log, and back to what a console elsewhere shows."""

from __future__ import annotations

import logging
import time

from pipeline.kubeflow.compiled import PROGRESS_MARK, StepProgress
from pipeline.runs.console import RunConsole

REPORT_SECONDS = 2
"""The least time between two lines of progress."""


class ProgressLines(logging.Handler):
    """Writes a component's progress into the step's log, for `kubeflow_runner.py` to read."""

    def __init__(self, console: RunConsole) -> None:
        """Prepares to write.

        Args:
          console: that of the step, whose lines are its log.
        """
        super().__init__()
        self._console = console
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless one was written a moment ago and more are to come."""
        done, total = getattr(record, "done", None), getattr(record, "total", None)
        is_last = done is not None and done == total
        if time.monotonic() < self._next and not is_last:
            return
        self._next = time.monotonic() + REPORT_SECONDS
        progress = StepProgress(
            message=record.getMessage(),
            done=done,
            total=total,
            detail=getattr(record, "detail", ""),
        )
        self._console.write(PROGRESS_MARK + progress.model_dump_json())


def record_of(progress: StepProgress) -> logging.LogRecord:
    """The log record that the component made, as a console takes it."""
    return logging.makeLogRecord({"msg": progress.message, **progress.model_dump()})
