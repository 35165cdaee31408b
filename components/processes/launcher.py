"""The interface between a supervisor and a launcher of workers, on this machine or elsewhere.

A worker is a process of a cluster: its chief, a parameter server, or one that computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer_module.tf_config import task_name

Cluster = dict[str, list[str]]
"""The addresses, `host:port`, by type of worker and in the order of the workers' indices."""

TAIL_LINES = 30
"""The number of lines of a worker's output that are kept for error messages."""


@dataclass(frozen=True)
class Place:
    """A worker's place in a cluster."""

    type: str
    """`chief`, `worker` or `ps`."""
    index: int
    label: str = ""
    """The worker's name in messages, if it is not its type and index."""

    @property
    def name(self) -> str:
        """The worker's name in messages, such as `worker 1`."""
        return self.label or task_name(self.type, self.index)


@dataclass(frozen=True)
class WorkerSpec:
    """The description of a worker to start."""

    place: Place
    module: str
    """The module whose function `main` is called; see `components.processes.worker.Main`."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """The argument of `main`, as JSON."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that are added to the environment."""
    seconds: float | None = None
    """The time limit; None for no limit."""


@dataclass(frozen=True)
class WorkerEvent:
    """An event that a worker reports: `alive`, `ready`, `progress`, `error` or `done`."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)


class RunningWorker(Protocol):
    """A worker that was started."""

    @property
    def began(self) -> float | None:
        """The `time.monotonic` at which the process began; None if it has not begun yet."""

    def poll(self) -> int | None:
        """Returns the exit status, or minus the signal that ended the worker; None while it
        runs.
        """

    def events(self) -> list[WorkerEvent]:
        """Returns the events since the last call."""

    def log_tail(self) -> list[str]:
        """Returns the last lines of the worker's output."""

    def remark(self) -> str:
        """Returns further information on the worker's start or end; empty if there is none."""

    def kill(self) -> None:
        """Kills the worker and all processes that it started, and returns when they have ended."""


class Launcher(Protocol):
    """An interface for starting workers."""

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Returns addresses at which the workers, once started, can serve; new ones at each
        call.
        """

    def start(self, spec: WorkerSpec) -> RunningWorker:
        """Starts a worker and returns it."""

    def stop_all(self) -> None:
        """Kills every worker that was started, and returns when they have ended."""
