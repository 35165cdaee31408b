"""A task that runs in a process of this machine."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO

from components.processes.launcher import TAIL_LINES, TaskEvent, TaskSpec
from components.processes.local.process import ProcessStart, TaskProcess

_PUMP_SECONDS = 5.0


class LocalTask:
    """See `RunningTask`."""

    def __init__(
        self,
        spec: TaskSpec,
        environment: Mapping[str, str],
        prefix: str,
        start_process: Callable[[ProcessStart], TaskProcess],
    ) -> None:
        """Starts it.

        Args:
          spec: what to start.
          environment: all of its environment.
          prefix: begins each line of its output.
          start_process: starts a process.
        """
        stdin, self._stdin = _open_pipe()
        self._output, output = _open_pipe()
        self._events, events = _open_pipe(buffering=0)
        os.set_blocking(self._events.fileno(), False)
        self._unread = b""
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        with stdin, output, events:
            self._process = start_process(
                ProcessStart(
                    module=spec.module,
                    name=spec.task.name,
                    environment=environment,
                    stdin=stdin.fileno(),
                    output=output.fileno(),
                    events=events.fileno(),
                )
            )
        self.began = time.monotonic()
        self._pump = threading.Thread(target=self._copy_output, args=[prefix.encode()], daemon=True)
        self._pump.start()
        # Whoever dies before it has read everything is found by its exit status.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(dict(spec.payload)).encode() + b"\n")
            self._stdin.flush()

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    def events(self) -> list[TaskEvent]:
        """What it said since the last call."""
        while chunk := self._events.read(65536):
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        return [TaskEvent(**json.loads(line)) for line in lines]

    def log_tail(self) -> list[str]:
        """The last lines of its output."""
        return list(self._tail)

    def remark(self) -> str:
        """Nothing: the exit status is all that is known."""
        return ""

    def kill(self) -> None:
        """Ends it, with every process that it started, and returns when it is gone."""
        self._process.kill_group()
        # The end of its input ends what is left of the group of a process that ended by itself.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._process.wait()
        self._pump.join(_PUMP_SECONDS)
        self._events.close()

    def _copy_output(self, prefix: bytes) -> None:
        """Copies the output to this process's own standard error, wherever that leads by then."""
        with self._output as output:
            for line in output:
                line = line.rstrip(b"\n")
                self._tail.append(line.decode(errors="replace"))
                with contextlib.suppress(OSError):
                    os.write(2, prefix + line + b"\n")


def _open_pipe(buffering: int = -1) -> tuple[IO[bytes], IO[bytes]]:
    """The reading end of a pipe, with a buffer of that size, and the writing end."""
    reading, writing = os.pipe()
    return open(reading, "rb", buffering), open(writing, "wb")
