"""Ending of processes in steps: signals, each followed by a grace period, and at last SIGKILL."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psutil

RUN_GRACE_SECONDS = 15.0
"""The grace period of a run that is stopped."""
CHILDREN_GRACE_SECONDS = 3.0
"""The grace period of the children of a process that ends. Halfway through it, the signal is
repeated."""
CLUSTER_GRACE_SECONDS = 2.0
"""The time for the workers of a training to report their errors after the first failure."""
POD_GRACE_SECONDS = 1
"""The grace period of the pod of a training's worker."""
SERVER_GRACE_SECONDS = 30
"""The grace period of a server's requests in progress."""
SCHEDULED_RUN_GRACE_SECONDS = 60.0
"""The grace period of a scheduled run. Halfway through it, the signal is repeated."""
POLL_SECONDS = 0.05

Send = Callable[[signal.Signals], bool]
"""A function that sends a signal, and returns whether a process may receive further signals."""


class Step(NamedTuple):
    """A signal and its grace period."""

    signal: signal.Signals
    seconds: float = math.inf
    """The grace period before the next step."""


class Ending:
    """The steps that end processes. The caller's loop takes the steps one by one."""

    def __init__(self, send: Send, steps: Sequence[Step]) -> None:
        """Creates the sequence, and sends no signal yet."""
        self._send = send
        self._remaining = list(steps)
        self._next_time = 0.0

    def advance(self) -> bool:
        """Sends the next signal if the grace period of the last signal has passed.

        Returns:
          Whether the caller should continue to wait. If not, no step is left, or no process may
          receive a signal.
        """
        now = time.monotonic()
        if now < self._next_time:
            return True
        if not self._remaining:
            return False
        step = self._remaining.pop(0)
        self._next_time = now + step.seconds
        return self._send(step.signal)


def end(send: Send, has_ended: Callable[[], bool], steps: Sequence[Step]) -> bool:
    """Sends signals until the processes have ended or no step is left.

    Returns:
      Whether the processes have ended.
    """
    ending = Ending(send, steps)
    while not has_ended():
        if not ending.advance():
            return has_ended()
        time.sleep(POLL_SECONDS)
    return True


class EndResult(NamedTuple):
    """The result of ending processes."""

    killed: list[psutil.Process]
    """The processes that received SIGKILL, as they had not ended before."""
    remaining: list[psutil.Process]


def end_processes(processes: Sequence[psutil.Process], steps: Sequence[Step]) -> EndResult:
    """Ends processes. psutil prevents signals to other processes that reuse their ids.

    Args:
      processes: the processes, which need not be children of this process.

    Raises:
      psutil.AccessDenied: a process belongs to another user.
    """
    remaining, killed = list(processes), list[psutil.Process]()

    def send(number: signal.Signals) -> bool:
        if number == signal.SIGKILL:
            killed.extend(remaining)
        for process in remaining:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return True

    def has_ended() -> bool:
        remaining[:] = filter(is_running, remaining)
        return not remaining

    end(send, has_ended, steps)
    return EndResult(killed, remaining)


def is_running(process: psutil.Process) -> bool:
    """Returns whether a process has not ended. A zombie has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_group(leader: int) -> None:
    """Kills a process group, if it exists.

    Args:
      leader: the process id of the group's leader. The caller must not have waited for the leader,
        as another process group may then have its id.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def name_signal(status: int) -> str:
    """Returns the name of the signal that ended a process, or an empty string if it exited.

    Args:
      status: the exit status, or minus the number of the signal.
    """
    return "" if status >= 0 else signal.Signals(-status).name
