"""The code inside a worker: reports events, enforces limits, and ends the process."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import psutil

from components.processes.failures import describe

_LOOKS_AT_MEMORY = 0.1


class Channel:
    """The channel for a worker's events."""

    def __init__(self, descriptor: int, mark: str = "") -> None:
        """Takes the writing end of a pipe, which the worker's child processes do not inherit.

        Args:
          descriptor: the pipe's descriptor.
          mark: the beginning of each line, for a pipe that has other writers.
        """
        os.set_inheritable(descriptor, False)
        self._mark = mark
        self._pipe = os.fdopen(descriptor, "w", buffering=1)
        self._lock = threading.Lock()

    def send(self, kind: str, **values: Any) -> None:
        """Sends an event: `ready`, or `progress` with `done`, `total`, `unit` and `detail`."""
        with self._lock:
            self._pipe.write(f"{self._mark}{json.dumps({'kind': kind, 'values': values})}\n")


Main = Callable[[dict[str, Any], Channel], None]
"""A worker's main function, which takes the payload and the channel."""


def load_main(module: str) -> Main:
    """Returns the function `main` of a worker's module."""
    main: Main = importlib.import_module(module).main
    return main


def run_worker(main: Main, payload: dict[str, Any], channel: Channel) -> NoReturn:
    """Runs a worker and then ends this process.

    The exit status is 0, or 1 if `main` raises; then the traceback is in the output, and the
    channel describes the error. Threads are not joined, as those of a TensorFlow cluster may never
    end.
    """
    channel.send("alive")
    status = 1
    try:
        main(payload, channel)
        channel.send("done")
        status = 0
    except BaseException as error:  # Also SystemExit, which a user's code may raise.
        traceback.print_exc()
        channel.send("error", **describe(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def limit_memory(memory: float, error: Exception, channel: Channel) -> None:
    """Ends this process, with an error, once it exceeds a limit of resident memory.

    The size of the address space is no measure with a GPU or large mapped files.

    Args:
      memory: the limit in bytes.
      error: the error for the channel.
      channel: the channel of this process.
    """
    process = psutil.Process()

    def watch() -> None:
        while process.memory_info().rss <= memory:
            time.sleep(_LOOKS_AT_MEMORY)
        channel.send("error", **describe(error))
        os._exit(1)

    threading.Thread(target=watch, name="memory", daemon=True).start()
