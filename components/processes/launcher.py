"""What a supervisor needs of whoever starts the tasks of a cluster, here or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer_module.tf_config import task_name

Cluster = dict[str, list[str]]
"""Addresses, `host:port`, by task type and in the order of the tasks' indices."""

TAIL_LINES = 30
"""Lines of a task's output that are kept for error messages."""


@dataclass(frozen=True)
class ClusterTask:
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
class TaskSpec:
    """What to start for a task."""

    task: ClusterTask
    module: str
    """Its function `main` is called, as `components.processes.child.Main` says."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """What `main` is told, as JSON."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment."""


@dataclass(frozen=True)
class TaskEvent:
    """What a task says of itself: `alive`, `ready`, `progress`, `error` or `done`."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)


class RunningTask(Protocol):
    """A task that was started."""

    @property
    def began(self) -> float | None:
        """When its process began, as `time.monotonic` tells; None if it did not yet."""

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""

    def events(self) -> list[TaskEvent]:
        """What it said since the last call."""

    def log_tail(self) -> list[str]:
        """The last lines of its output."""

    def remark(self) -> str:
        """What else is known of how it starts or why it ended; empty if nothing is."""

    def kill(self) -> None:
        """Ends it, with every process that it started, and returns when it is gone."""


class Launcher(Protocol):
    """Starts tasks somewhere."""

    def allocate(self, tasks: Sequence[ClusterTask]) -> Cluster:
        """Addresses at which the tasks, once started, can serve; new ones at each call."""

    def start(self, spec: TaskSpec) -> RunningTask:
        """Starts a task."""

    def stop_all(self) -> None:
        """Kills every task that was started, and returns when they are gone."""
