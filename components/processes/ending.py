"""Ends processes in order: they are told to end, told again, and killed."""

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
"""How long a run that is stopped may take to end."""
CHILDREN_GRACE_SECONDS = 3.0
"""How long the children of a process that ends may take; after half of that they are told again."""
CLUSTER_GRACE_SECONDS = 2.0
"""How long a training's workers may still say what happened to them after the first failure."""
POD_GRACE_SECONDS = 1
"""How long the pod of a training's worker may take to end."""
SERVER_GRACE_SECONDS = 30
"""How long the requests may take that have come before a server is stopped."""
SCHEDULED_RUN_GRACE_SECONDS = 60.0
"""How long a scheduled run may take to end; after half of that it is told again."""
LOOKS_EVERY = 0.05
"""Seconds between two looks at a process that is watched or waited for."""

Send = Callable[[signal.Signals], bool]
"""Sends a signal; returns whether there is something left that can get it."""


class Step(NamedTuple):
    """A signal, and what follows."""

    signal: signal.Signals
    seconds: float = math.inf
    """How long what gets it may take to end, until the next step."""


class Ending:
    """Takes one step after the other, for a loop that looks at other things as well."""

    def __init__(self, send: Send, steps: Sequence[Step]) -> None:
        """Has sent nothing yet.

        Args:
          send: sends a signal.
          steps: in their order.
        """
        self._send = send
        self._left = list(steps)
        self._due = 0.0

    def advance(self) -> bool:
        """Sends the next signal if the one before has had its time; whether to wait on."""
        now = time.monotonic()
        if now < self._due:
            return True
        if not self._left:
            return False
        step = self._left.pop(0)
        self._due = now + step.seconds
        return self._send(step.signal)


def end(send: Send, has_ended: Callable[[], bool], steps: Sequence[Step]) -> bool:
    """Ends something, and returns once it has ended, or nothing is left to be tried.

    Args:
      send: sends a signal to it.
      has_ended: whether it has ended.
      steps: which signals, and how long each may take.

    Returns:
      Whether it has ended.
    """
    ending = Ending(send, steps)
    while not has_ended():
        if not ending.advance():
            return has_ended()
        time.sleep(LOOKS_EVERY)
    return True


class Ended(NamedTuple):
    """What became of processes."""

    killed: list[psutil.Process]
    """Those that were sent SIGKILL, as they had not ended before."""
    left: list[psutil.Process]
    """Those that run still."""


def end_processes(processes: Sequence[psutil.Process], steps: Sequence[Step]) -> Ended:
    """Ends processes; psutil sees to it that no other one gets a signal that has their id by now.

    Args:
      processes: whoever has started them.
      steps: which signals, and how long each may take.

    Raises:
      psutil.AccessDenied: one belongs to another user.
    """
    left, killed = list(processes), list[psutil.Process]()

    def send(number: signal.Signals) -> bool:
        if number == signal.SIGKILL:
            killed.extend(left)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return True

    def has_ended() -> bool:
        left[:] = filter(is_running, left)
        return not left

    end(send, has_ended, steps)
    return Ended(killed, left)


def is_running(process: psutil.Process) -> bool:
    """Returns whether a process has not ended; one for which only nobody has waited yet has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_group(leader: int) -> None:
    """Kills the process group of a leader that has not been waited for, if there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def name_signal(status: int) -> str:
    """Returns the name of the signal that ended a process; empty if it ended by itself.

    Args:
      status: the exit status, or minus the signal.
    """
    return "" if status >= 0 else signal.Signals(-status).name
