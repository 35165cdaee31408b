"""A task's process on this machine: what it begins with, and how a fresh one is started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

TASK_PROCESS = "components.processes.local.task_process"
"""What a fresh interpreter runs."""


@dataclass(frozen=True)
class ProcessStart:
    """What a task's process begins with; it gets copies of the descriptors."""

    module: str
    """The task's; its `main` is called."""
    name: str
    """The task's, for whoever looks at the list of processes."""
    environment: Mapping[str, str]
    """All of its environment."""
    stdin: int
    """The reading end of a pipe that holds the payload, as a line of JSON. The process group ends
    when nobody holds the other end any more."""
    output: int
    """Its standard output and error."""
    events: int
    """The writing end of the pipe of its channel."""


class TaskProcess(Protocol):
    """A process that leads a group of its own."""

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""

    def wait(self) -> None:
        """Returns when it has ended."""

    def kill_group(self) -> None:
        """Ends it, if it still runs, and all of its group."""


class FreshProcess:
    """A new interpreter, that imports everything itself; see `TaskProcess`."""

    def __init__(self, start: ProcessStart) -> None:
        """Starts it; the thread that calls this must outlive it."""
        self._process = subprocess.Popen(
            # -P: the folder that it starts in hides no module that this process finds.
            [
                *(sys.executable, "-P", "-m", TASK_PROCESS),
                *(str(os.getpid()), str(start.events), start.module, start.name),
            ],
            stdin=start.stdin,
            stdout=start.output,
            stderr=subprocess.STDOUT,
            env=start.environment,
            pass_fds=[start.events],
            start_new_session=True,
        )

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    def wait(self) -> None:
        """Returns when it has ended."""
        self._process.wait()

    def kill_group(self) -> None:
        """Ends it, if it still runs, and all of its group."""
        # The number of a process that has been waited for may be another's by now.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
