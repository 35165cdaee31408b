"""Runs a command as a process of its own, with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO

from pipeline.schedule.process_lock import ProcessLock

GRACE_SECONDS = 60.0
"""A process that was told to stop, and again after half of that, is killed after so long."""
LOG_BYTES = 5_000_000
"""A log that has become so long is set aside when the next command begins; one is kept."""
_POLL_SECONDS = 0.1
"""How often to look for output, the time limit, and whether to stop."""


@dataclass(frozen=True)
class ProcessResult:
    """How a process ended."""

    exit_code: int
    """Negative: the signal that killed it."""
    timed_out: bool = False
    last_line: str = ""
    """The last line of its output that is not empty."""


def run_process(
    command: Sequence[str],
    lock_file: Path,
    log_file: Path,
    timeout: timedelta,
    stop: threading.Event,
    on_line: Callable[[str], None],
) -> ProcessResult:
    """Runs a command to its end, in a process group of its own.

    Its output goes to a file, not to a pipe: should this process be killed, the command can go on.

    Args:
      command: to run.
      lock_file: the command holds this lock until it ends.
      log_file: the command's output is appended to it; a long one becomes `<name>.1` first.
      timeout: the command is told to stop after so long.
      stop: once set, the command is told to stop.
      on_line: called with each line of the output.

    Raises:
      BlockingIOError: an earlier command holds the lock.
    """
    with closing(ProcessLock(lock_file)) as lock, _appended(log_file) as (output, log):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock.descriptor],
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        lines = _LineSplitter(on_line)
        watchdog = _Watchdog(process, timeout.total_seconds())
        try:
            while process.poll() is None:
                watchdog.check(stop)
                lines.add(log.read())
                time.sleep(_POLL_SECONDS)
            lines.add(log.read() + b"\n")
        except BaseException:
            process.terminate()  # Nothing would enforce its time limit any more.
            raise
    return ProcessResult(process.returncode, watchdog.timed_out, lines.last)


@contextmanager
def _appended(log_file: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The log to write to, and to read what is written from now on."""
    if log_file.exists() and log_file.stat().st_size >= LOG_BYTES:
        log_file.replace(log_file.with_name(f"{log_file.name}.1"))
    with log_file.open("ab") as output, log_file.open("rb") as log:
        log.seek(0, os.SEEK_END)
        yield output, log


class _LineSplitter:
    """Passes lines on once they are complete."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._incomplete = b""
        self.last = ""

    def add(self, data: bytes) -> None:
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        for line in lines:
            if text := line.decode(errors="replace").rstrip():
                self.last = text
                self._on_line(text)


class _Watchdog:
    """Tells a process to stop when its time is up or the scheduler stops, and kills it later."""

    def __init__(self, process: subprocess.Popen[bytes], timeout: float) -> None:
        self._process = process
        self._deadline = time.monotonic() + timeout
        self._kill_at: float | None = None
        self._was_told_again = False
        self.timed_out = False

    def check(self, stop: threading.Event) -> None:
        now = time.monotonic()
        if self._kill_at is None:
            self.timed_out = now >= self._deadline
            if self.timed_out or stop.is_set():
                # Not to its whole group: the run ends its training processes itself.
                self._process.terminate()
                self._kill_at = now + GRACE_SECONDS
        elif now >= self._kill_at:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        elif now >= self._kill_at - GRACE_SECONDS / 2 and not self._was_told_again:
            self._was_told_again = True
            self._process.terminate()
