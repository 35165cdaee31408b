"""The code inside a worker, which reports events, enforces limits, and ends the process."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import psutil

from components.processes.failures import describe
from trainer_module.runtime import PROGRESS_LOGGER

_MEMORY_CHECK_SECONDS = 0.1


class Channel:
    """The channel for a worker's events."""

    def __init__(self, descriptor: int, mark: str = "") -> None:
        """Opens the writing end of a pipe, which the worker's child processes do not inherit.

        Args:
          mark: the beginning of each line, which identifies events in a pipe with other writers.
        """
        os.set_inheritable(descriptor, False)
        self._mark = mark
        self._pipe = os.fdopen(descriptor, "w", buffering=1)
        self._lock = threading.Lock()

    def send(self, kind: str, **values: Any) -> None:
        """Sends an event. The values of `progress` are the arguments of `report_step`."""
        with self._lock:
            self._pipe.write(f"{self._mark}{json.dumps({'kind': kind, 'values': values})}\n")


_PROGRESS_FIELDS = ("done", "total", "detail", "left", "is_logged")
"""The arguments of `report_step`, in addition to the text."""


class _ProgressForwarder(logging.Handler):
    """A logging handler that sends the progress to the channel."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        """Sends an event for a log record that reports progress."""
        if getattr(record, "ready", False):
            self._channel.send("ready")
        elif hasattr(record, "done"):
            values = {name: getattr(record, name) for name in _PROGRESS_FIELDS}
            self._channel.send("progress", text=record.getMessage(), **values)


def forward_progress(channel: Channel) -> None:
    """Sends the progress that this process reports to the channel."""
    progress = logging.getLogger(PROGRESS_LOGGER)
    progress.setLevel(logging.INFO)
    progress.addHandler(_ProgressForwarder(channel))
    # The process that receives the events logs them.
    progress.propagate = False


Main = Callable[[dict[str, Any], Channel], None]
"""A worker's main function, which takes the payload and the channel."""


def load_main(module: str) -> Main:
    """Returns the function `main` of a worker's module."""
    main: Main = importlib.import_module(module).main
    return main


def run_worker(main: Main, payload: dict[str, Any], channel: Channel) -> NoReturn:
    """Runs a worker and then ends this process.

    The exit status is 0, or 1 if `main` raises an error. The traceback of the error is printed, and
    the channel sends a description of the error. Threads are not joined, as threads of a TensorFlow
    cluster may never end.
    """
    channel.send("alive")
    status = 1
    try:
        main(payload, channel)
        channel.send("done")
        status = 0
    except BaseException as error:  # A user's code may raise SystemExit.
        traceback.print_exc()
        channel.send("error", **describe(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def limit_memory(memory: float, error: Exception, channel: Channel) -> None:
    """Ends this process with an error as soon as its resident memory exceeds a limit.

    The limit does not apply to the address space, which is large with a GPU or mapped files.

    Args:
      memory: the limit in bytes.
      error: the error that the channel sends.
    """
    process = psutil.Process()

    def watch() -> None:
        while process.memory_info().rss <= memory:
            time.sleep(_MEMORY_CHECK_SECONDS)
        channel.send("error", **describe(error))
        os._exit(1)

    threading.Thread(target=watch, name="memory", daemon=True).start()
