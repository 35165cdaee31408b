"""A worker's own side, wherever it runs: says how it goes, keeps to its limits, and ends."""

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
    """Where a worker says how it goes."""

    def __init__(self, descriptor: int, mark: str = "") -> None:
        """Takes the writing end of a pipe, and keeps it from the processes that the worker starts.

        Args:
          descriptor: the pipe's.
          mark: begins each line, where others write into the pipe, too.
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
"""What a worker does: gets its payload, and the channel."""


def load_main(module: str) -> Main:
    """Returns the function `main` of the module that a worker names."""
    main: Main = importlib.import_module(module).main
    return main


def run_worker(main: Main, payload: dict[str, Any], channel: Channel) -> NoReturn:
    """Runs a worker to its end, which is that of this process.

    The exit status is 0, or 1 if `main` raises; then the traceback is in the output, and the
    channel says what it was. Nothing else is waited for: threads of a TensorFlow cluster may never
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


def end_beyond(memory: float, error: Exception, channel: Channel) -> None:
    """Ends this process once it holds more memory than that, and says the error then.

    The address space of what uses a GPU, or maps large files, tells nothing of that.

    Args:
      memory: bytes that are resident.
      error: what the channel says.
      channel: of this process.
    """
    process = psutil.Process()

    def watch() -> None:
        while process.memory_info().rss <= memory:
            time.sleep(_LOOKS_AT_MEMORY)
        channel.send("error", **describe(error))
        os._exit(1)

    threading.Thread(target=watch, name="memory", daemon=True).start()
