"""What a supervisor needs of whoever starts the workers of a cluster, here or elsewhere.

A worker is a process that a cluster runs: its chief, a parameter server, or one that computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer_module.tf_config import task_name

Cluster = dict[str, list[str]]
"""Addresses, `host:port`, by type of worker and in the order of the workers' indices."""

TAIL_LINES = 30
"""Lines of a worker's output that are kept for error messages."""


@dataclass(frozen=True)
class Place:
    """A place in a cluster."""

    type: str
    """`chief`, `worker` or `ps`."""
    index: int
    label: str = ""
    """What messages call it, if something else than its type and index."""

    @property
    def name(self) -> str:
        """What messages call it: `worker 1`."""
        return self.label or task_name(self.type, self.index)


@dataclass(frozen=True)
class WorkerSpec:
    """What to start as a worker."""

    place: Place
    module: str
    """Its function `main` is called, as `components.processes.worker.Main` says."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """What `main` is told, as JSON."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment."""
    seconds: float | None = None
    """Until it has to have ended; None waits for ever."""


@dataclass(frozen=True)
class WorkerEvent:
    """What a worker says of itself: `alive`, `ready`, `progress`, `error` or `done`."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)


class RunningWorker(Protocol):
    """A worker that was started."""

    @property
    def began(self) -> float | None:
        """When its process began, as `time.monotonic` tells; None if it did not yet."""

    def poll(self) -> int | None:
        """Returns the exit status, or minus the signal that ended it; None while it runs."""

    def events(self) -> list[WorkerEvent]:
        """What it said since the last call."""

    def log_tail(self) -> list[str]:
        """Returns the last lines of its output."""

    def remark(self) -> str:
        """What else is known of how it starts or why it ended; empty if nothing is."""

    def kill(self) -> None:
        """Ends it, with every process that it started, and returns when it is gone."""


class Launcher(Protocol):
    """Starts workers somewhere."""

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Addresses at which the workers, once started, can serve; new ones at each call."""

    def start(self, spec: WorkerSpec) -> RunningWorker:
        """Starts a worker."""

    def stop_all(self) -> None:
        """Kills every worker that was started, and returns when they are gone."""
