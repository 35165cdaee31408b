"""Runs a command as a child process, with a time limit that outlives the scheduler."""

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
"""The size above which a log is rotated when the next command begins; one old log is kept."""
_KILL_SECONDS = 5.0
"""The seconds to wait for a killed process to disappear."""
_POLL_SECONDS = 0.1
"""The seconds between checks for output, the time limit, and the stop event."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class TimeLimit:
    """The time limit of a command in its lock file, for use after its scheduler was killed."""

    command: str
    """The name of the command, without its options: `run` or `skew`."""
    seconds: float
    boot: str
    """The boot id of the machine, as the monotonic clock starts at boot."""
    monotonic: float
    """The deadline by the monotonic clock, which cannot be set."""
    clock: float
    """The deadline by the machine's clock, for use after another boot or on another machine."""
    process: int = 0
    """The id of the command's process, which leads a group; 0 before it is started."""
    began: int = 0
    """The start time of that process, from `_began`, as the system may reuse the process id."""

    @classmethod
    def of(cls, command: str, timeout: timedelta) -> TimeLimit:
        """Returns the limit of a command that begins now."""
        seconds = timeout.total_seconds()
        return cls(command, seconds, _boot(), time.monotonic() + seconds, time.time() + seconds)

    @classmethod
    def read(cls, lock_file: Path) -> TimeLimit | None:
        """Returns the limit of the command that holds a lock, or None without command or limit."""
        if not is_held(lock_file):
            return None
        try:
            return cls(**json.loads(lock_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def to_json(self) -> str:
        """Returns the content of the lock file, for `read`."""
        return json.dumps(asdict(self))

    @property
    def timeout(self) -> timedelta:
        """The longest duration of the command."""
        return timedelta(seconds=self.seconds)

    @property
    def overdue_seconds(self) -> float:
        """The seconds since the deadline; negative before it."""
        if self.boot == _boot():
            return time.monotonic() - self.monotonic
        return time.time() - self.clock


@dataclass(frozen=True)
class ProcessResult:
    """The result of a process."""

    exit_code: int
    """The exit code; negative for the signal that killed the process."""
    timed_out: timedelta | None = None
    """The time limit, if the process exceeded it."""
    last_line: str = ""
    """The last line of the output that is not empty."""


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

    The output goes to a file, not to a pipe, so that the command survives if this process is
    killed. The time limit is in the lock file, where `end_overdue` finds the limit.

    Args:
      runner: the command to run.
      arguments: the subcommand and its options, appended to the runner.
      lock_file: the lock that the command holds until its end.
      log_file: the log for the command's output; a long log is renamed to `<name>.1` first.
      timeout: the duration after which the command receives SIGTERM.
      stop: an event; once it is set, the command receives SIGTERM.
      on_line: called with each line of the output.

    Raises:
      BlockingIOError: an earlier command holds the lock.
    """
    limit = TimeLimit.of(arguments[0], timeout)
    locked = closing(ProcessLock(lock_file, limit.to_json()))
    with locked as lock, _open_log(log_file) as (output, log):
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
            process.terminate()  # Until the next check, no watchdog limits the command.
            raise
    timed_out = timeout if watchdog.timed_out else None
    return ProcessResult(process.returncode, timed_out, lines.last)


def end_overdue(lock_file: Path) -> TimeLimit | None:
    """Ends a command that exceeds its time limit after its scheduler was killed.

    Args:
      lock_file: the lock that the command holds; only a process that may start another command
        calls this function.

    Returns:
      The limit of the command that was ended, or None if no command is overdue.

    Raises:
      InternalError: an overdue command cannot be ended.
    """
    limit = TimeLimit.read(lock_file)
    if limit is None or limit.overdue_seconds < 0:
        return None
    has_ended = end(
        lambda number: _signal(limit, number), lambda: not is_held(lock_file), _steps(_KILL_SECONDS)
    )
    if has_ended:
        return limit
    processes = ", ".join(str(process.pid) for process in _processes_of(limit))
    raise InternalError(
        f"{lock_file}: a `{limit.command}` that a scheduler started has outlived its time limit of "
        f"{show_duration(limit.timeout)} and cannot be ended from here: "
        + (
            f"processes {processes} remain"
            if processes
            else "no process of this machine holds the file"
        )
    )


def _steps(killed: float) -> list[Step]:
    """Returns the signals that end a command, with their grace periods.

    Args:
      killed: the seconds to wait after SIGKILL.
    """
    terminate = Step(signal.SIGTERM, SCHEDULED_RUN_GRACE_SECONDS / 2)
    return [terminate, terminate, Step(signal.SIGKILL, killed)]


def _signal(limit: TimeLimit, number: signal.Signals) -> bool:
    """Sends a signal to a command; returns whether it has processes on this machine.

    SIGKILL goes to its whole process group; other signals go to the leader, which ends its child
    processes.
    """
    processes = _processes_of(limit)
    leaders = [process for process in processes if process.pid == limit.process]
    for process in processes if number == signal.SIGKILL else leaders or processes:
        with suppress(psutil.Error):  # psutil refuses a reused process id.
            process.send_signal(number)
    return bool(processes)


def _processes_of(limit: TimeLimit) -> list[psutil.Process]:
    """Returns the processes of a command's group on this machine.

    The system does not reuse the id of a leader that has ended while its group has processes.
    """
    if not limit.process or limit.boot != _boot():
        return []
    group = [process for process in psutil.process_iter() if _group(process) == limit.process]
    with suppress(OSError):  # The leader has ended.
        if _began(limit.process) != limit.began:
            return []
    return group


def _began(process: int) -> int:
    """Returns the start time of a process in ticks since boot, which no change of the clock
    affects.
    """
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])


def _group(process: psutil.Process) -> int | None:
    """Returns the id of a process's group, or None if the process has ended."""
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def _boot() -> str:
    return _BOOT_ID.read_text().strip()


@contextmanager
def _open_log(log_file: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yields the log for appending, and a reader of everything that is appended."""
    if log_file.exists() and log_file.stat().st_size >= LOG_BYTES:
        log_file.replace(log_file.with_name(f"{log_file.name}.1"))
    with log_file.open("ab") as output, log_file.open("rb") as log:
        log.seek(0, os.SEEK_END)
        yield output, log


class _LineSplitter:
    """A splitter that passes complete lines to a function."""

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
    """A watchdog that stops a process at its time limit or on request, and kills it later."""

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
            # The signal goes only to the leader, as a run ends its child processes itself.
            self._process.send_signal(number)
        return True
