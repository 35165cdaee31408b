"""The child's side of a task that a launcher starts: takes its payload, says how it goes."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from components.trainer.cluster.failures import describe
from components.trainer.cluster.kubernetes.pod import enter_pod
from components.trainer.cluster.kubernetes.pod_protocol import MARK, TASKS_VARIABLE
from components.trainer.cluster.parent_watch import die_with_parent


class Channel:
    """Where a task says how it goes."""

    def __init__(self, descriptor: int, mark: str = "") -> None:
        """Takes the writing end of a pipe, and keeps it from the processes that the task starts.

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


def run(main: Callable[[dict[str, Any], Channel], None]) -> NoReturn:
    """Runs a task to its end: `main` gets the payload and the channel.

    The process ends with status 0, or 1 if `main` raises; then the traceback is in its output, and
    the channel says what it was. Nothing else is waited for: threads of a TensorFlow cluster may
    never end.
    """
    payload, channel = _enter()
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


def _enter() -> tuple[dict[str, Any], Channel]:
    """Takes the payload and the channel from whoever started this process."""
    if TASKS_VARIABLE in os.environ:
        return enter_pod(), Channel(os.dup(2), MARK)
    parent, descriptor = map(int, sys.argv[1:3])
    payload = sys.stdin.buffer.readline()
    die_with_parent(parent)
    return json.loads(payload), Channel(descriptor)
