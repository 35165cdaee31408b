"""The interface between a supervisor and a launcher of workers.

A worker is a process of a cluster: the chief, a parameter server, or a worker that computes.
Launchers start workers on this machine or as pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer_module.tf_config import task_name

Cluster = dict[str, list[str]]
"""The addresses by type of worker, in the order of the workers' indices. An address is `host:port`.
"""

TAIL_LINES = 30
"""The number of lines of a worker's output that are kept for error messages."""


@dataclass(frozen=True)
class Place:
    """A worker's place in a cluster: its type and index."""

    type: str
    """`chief`, `worker` or `ps`."""
    index: int
    label: str = ""
    """The worker's name in messages, or an empty string for its type and index."""

    @property
    def name(self) -> str:
        """The worker's name in messages, such as `worker 1`."""
        return self.label or task_name(self.type, self.index)


@dataclass(frozen=True)
class WorkerSpec:
    """The description of a worker to start."""

    place: Place
    module: str
    """The module whose function `main` is called. Its type is `components.processes.worker.Main`.
    """
    payload: Mapping[str, Any] = field(default_factory=dict)
    """The argument of `main`, as JSON."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that are added to the environment."""
    seconds: float | None = None
    """The time limit in seconds, or None for no limit."""


@dataclass(frozen=True)
class WorkerEvent:
    """An event that a worker reports: `alive`, `ready`, `progress`, `error` or `done`."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)


class RunningWorker(Protocol):
    """A worker that was started."""

    @property
    def begin_time(self) -> float | None:
        """The `time.monotonic` at which the process began, or None before the process has begun."""

    def poll(self) -> int | None:
        """Returns the status of a worker that has ended, or None while it runs.

        The status is the exit status, or minus the number of the signal that ended the worker.
        """

    def events(self) -> list[WorkerEvent]:
        """Returns the events since the last call."""

    def log_tail(self) -> list[str]:
        """Returns the last lines of the worker's output."""

    def remark(self) -> str:
        """Returns the reason for the worker's delay or end, or an empty string."""

    def kill(self) -> None:
        """Kills the worker and all processes that it started, and returns when they have ended."""


class Launcher(Protocol):
    """An interface for starting workers."""

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Returns the addresses at which the workers can serve when they are started.

        Each call returns new addresses.
        """

    def start(self, spec: WorkerSpec) -> RunningWorker:
        """Starts a worker and returns it."""

    def stop_all(self) -> None:
        """Kills every worker that was started, and returns when they have ended."""
