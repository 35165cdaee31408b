"""One run as a process of its own, watched by a scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pipeline.schedule.process_lock import ProcessLock

GRACE_SECONDS = 60.0
"""A run that was told to stop and has not by then is killed."""
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    exit_code: int
    """Negative: the signal that killed it."""
    timed_out: bool = False
    last_line: str = ""
    """Of its output."""


def run_process(
    command: Sequence[str],
    held: Path,
    log: Path,
    timeout: timedelta,
    stop: threading.Event,
    say: Callable[[str], None],
) -> Outcome:
    """Runs a command to its end, in a process group of its own.

    Its output goes to a file, not to a pipe, so that it can go on without its scheduler.

    Args:
      command: to run.
      held: a file that the process holds as long as it lives.
      log: its output is appended here.
      timeout: it is told to stop after so long.
      stop: once set, it is told to stop.
      say: gets its output, line by line.

    Raises:
      BlockingIOError: an earlier process holds the file.
    """
    with closing(ProcessLock(held)) as holding, log.open("wb") as output, log.open("rb") as tail:
        tail.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[holding.descriptor],
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        lines = _Lines(say)
        watch = _Watch(process, timeout.total_seconds())
        try:
            while process.poll() is None:
                watch.look(stop)
                lines.add(tail.read())
                time.sleep(_LOOK_SECONDS)
            lines.add(tail.read() + b"\n")
        except BaseException:
            process.terminate()  # Nobody would look after it.
            raise
    return Outcome(process.returncode, watch.timed_out, lines.last)


class _Lines:
    """Passes whole lines on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest = b""
        self.last = ""

    def add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if text := line.decode(errors="replace").rstrip():
                self.last = text
                self._say(text)


class _Watch:
    """Ends a process that should: first it is asked to."""

    def __init__(self, process: subprocess.Popen[bytes], timeout: float) -> None:
        self._process = process
        self._deadline = time.monotonic() + timeout
        self._kill_at: float | None = None
        self.timed_out = False

    def look(self, stop: threading.Event) -> None:
        now = time.monotonic()
        if self._kill_at is None:
            self.timed_out = now >= self._deadline
            if self.timed_out or stop.is_set():
                # To itself alone: it looks after the processes that train for it.
                self._process.terminate()
                self._kill_at = now + GRACE_SECONDS
        elif now >= self._kill_at:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
