"""The log of a server."""

from __future__ import annotations

import json
import logging
import sys


class _JsonFormatter(logging.Formatter):
    """A line of JSON for each message."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._worker,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_as_json(worker: int | None = None) -> None:
    """Logs to standard error, a line of JSON each.

    Args:
      worker: the number of this process among several.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(worker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
