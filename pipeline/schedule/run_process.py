"""Runs a command as a process of its own, with a time limit that outlives the scheduler."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import IO

import psutil

from components.processes.ending import SCHEDULED_RUN_GRACE_SECONDS, Ending, Step, end, kill_group
from pipeline.lock import ProcessLock, is_held
from trainer_module.errors import InternalError
from trainer_module.settings.durations import show_duration

LOG_BYTES = 5_000_000
"""A log that has become so long is set aside when the next command begins; one is kept."""
_KILL_SECONDS = 5.0
"""How long a process that was killed may take to be gone."""
_POLL_SECONDS = 0.1
"""How often to look for output, the time limit, and whether to stop."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class TimeLimit:
    """Until when a command may run, as its lock file says to who comes after a killed scheduler."""

    command: str
    """The name of the command, without its options: `run` or `skew`."""
    seconds: float
    boot: str
    """Of the machine: its monotonic clock counts from there."""
    monotonic: float
    """When the time is up, by the monotonic clock, which nobody sets."""
    clock: float
    """The same by the machine's clock, for another machine or after another boot."""
    process: int = 0
    """The id of the command's process, which leads a group; 0 before it is started."""
    began: int = 0
    """When that began, as `_began` has it: another may have the id by now."""

    @classmethod
    def of(cls, command: str, timeout: timedelta) -> TimeLimit:
        """Returns the limit of a command that begins now."""
        seconds = timeout.total_seconds()
        return cls(command, seconds, _boot(), time.monotonic() + seconds, time.time() + seconds)

    @classmethod
    def read(cls, lock_file: Path) -> TimeLimit | None:
        """Returns the limit of the command that holds a lock; None if none does, or it has no
        limit.
        """
        if not is_held(lock_file):
            return None
        try:
            return cls(**json.loads(lock_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def to_json(self) -> str:
        """As `read` finds it in the lock file."""
        return json.dumps(asdict(self))

    @property
    def timeout(self) -> timedelta:
        """How long the command may take."""
        return timedelta(seconds=self.seconds)

    @property
    def overdue_seconds(self) -> float:
        """For how long the time has been up; negative while it is not."""
        if self.boot == _boot():
            return time.monotonic() - self.monotonic
        return time.time() - self.clock


@dataclass(frozen=True)
class ProcessResult:
    """How a process ended."""

    exit_code: int
    """Negative: the signal that killed it."""
    timed_out: timedelta | None = None
    """The time limit that it exceeded, if it did."""
    last_line: str = ""
    """The last line of its output that is not empty."""


def run_process(
    runner: Sequence[str],
    arguments: Sequence[str],
    lock_file: Path,
    log_file: Path,
    timeout: timedelta,
    stop: threading.Event,
    on_line: Callable[[str], None],
) -> ProcessResult:
    """Runs a command to its end, in a process group of its own.

    Its output goes to a file, not to a pipe: should this process be killed, the command can go on.
    Its time limit stands in the lock file, where `end_overdue` finds it then.

    Args:
      runner: what is run.
      arguments: the name of the command and its options, appended to the runner.
      lock_file: the command holds this lock until it ends.
      log_file: the command's output is appended to it; a long one becomes `<name>.1` first.
      timeout: the command is told to stop after so long.
      stop: once set, the command is told to stop.
      on_line: called with each line of the output.

    Raises:
      BlockingIOError: an earlier command holds the lock.
    """
    limit = TimeLimit.of(arguments[0], timeout)
    locked = closing(ProcessLock(lock_file, limit.to_json()))
    with locked as lock, _appended(log_file) as (output, log):
        process = subprocess.Popen(
            [*runner, *arguments],
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
            lock.write(replace(limit, process=process.pid, began=_began(process.pid)).to_json())
            while process.poll() is None:
                watchdog.check(stop)
                lines.add(log.read())
                time.sleep(_POLL_SECONDS)
            lines.add(log.read() + b"\n")
        except BaseException:
            process.terminate()  # Nobody watches it until the next look.
            raise
    timed_out = timeout if watchdog.timed_out else None
    return ProcessResult(process.returncode, timed_out, lines.last)


def end_overdue(lock_file: Path) -> TimeLimit | None:
    """Ends a command that has outlived its time limit, and the scheduler that would have ended it.

    Args:
      lock_file: the command holds this lock; whoever calls this is the one that may start another.

    Returns:
      The limit of the command that was ended; None if none is overdue.

    Raises:
      InternalError: one is overdue and cannot be ended.
    """
    limit = TimeLimit.read(lock_file)
    if limit is None or limit.overdue_seconds < 0:
        return None
    has_ended = end(
        lambda number: _signal(limit, number), lambda: not is_held(lock_file), _steps(_KILL_SECONDS)
    )
    if has_ended:
        return limit
    found = ", ".join(str(process.pid) for process in _processes_of(limit))
    raise InternalError(
        f"{lock_file}: a `{limit.command}` that a scheduler started has outlived its time limit of "
        f"{show_duration(limit.timeout)} and cannot be ended from here: "
        + (f"process {found} is left" if found else "no process of this machine holds the file")
    )


def _steps(killed: float) -> list[Step]:
    """What ends a command; one that was killed may take so many seconds."""
    told = Step(signal.SIGTERM, SCHEDULED_RUN_GRACE_SECONDS / 2)
    return [told, told, Step(signal.SIGKILL, killed)]


def _signal(limit: TimeLimit, number: signal.Signals) -> bool:
    """Sends a signal to a command; whether there is something of it on this machine.

    SIGKILL goes to its whole group; one that is only told ends its own processes itself.
    """
    processes = _processes_of(limit)
    leaders = [process for process in processes if process.pid == limit.process]
    for process in processes if number == signal.SIGKILL else leaders or processes:
        with suppress(psutil.Error):  # psutil refuses a process that has got the id of another.
            process.send_signal(number)
    return bool(processes)


def _processes_of(limit: TimeLimit) -> list[psutil.Process]:
    """Returns the group of a command, as far as it is on this machine.

    The system gives nobody the id of a leader that has ended while its group has processes.
    """
    if not limit.process or limit.boot != _boot():
        return []
    found = [process for process in psutil.process_iter() if _group(process) == limit.process]
    with suppress(OSError):  # The leader has ended.
        if _began(limit.process) != limit.began:
            return []
    return found


def _began(process: int) -> int:
    """When a process began: in ticks since the boot, which no change of the clock moves."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])


def _group(process: psutil.Process) -> int | None:
    """Returns the id of a process's group; None if it has ended."""
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def _boot() -> str:
    return _BOOT_ID.read_text().strip()


@contextmanager
def _appended(log_file: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yields the log to write to, and to read what is written from now on."""
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
        self._ending: Ending | None = None
        self.timed_out = False

    def check(self, stop: threading.Event) -> None:
        if self._ending is None:
            self.timed_out = time.monotonic() >= self._deadline
            if self.timed_out or stop.is_set():
                self._ending = Ending(self._send, _steps(math.inf))
        if self._ending is not None:
            self._ending.advance()

    def _send(self, number: signal.Signals) -> bool:
        if number == signal.SIGKILL:
            kill_group(self._process.pid)
        else:
            # Not to its whole group: the run ends its training processes itself.
            self._process.send_signal(number)
        return True
