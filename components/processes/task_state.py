"""One task of a job, as its supervisor has seen it so far."""

from __future__ import annotations

import time

from components.processes.failures import Failure
from components.processes.launcher import RunningTask, TaskEvent, TaskSpec
from trainer_module.progress import report_progress


class TaskState:
    """What a running task has said, and whether it has ended."""

    def __init__(self, spec: TaskSpec, handle: RunningTask, forwards_progress: bool) -> None:
        """Begins with a task that was just started.

        Args:
          spec: what was started.
          handle: the running task.
          forwards_progress: whether its progress is that of the whole job.
        """
        self.spec = spec
        self.handle = handle
        self.is_alive = False
        self.is_ready = False
        self.is_done = False
        self.failure: Failure | None = None
        self.started = time.monotonic()
        """When it was asked for; it may begin much later."""
        self._forwards_progress = forwards_progress

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.is_done or self.failure is not None

    def look(self) -> None:
        """Takes in what the task has said since the last look, and how it ended."""
        # First, as the last events are there once the process has ended.
        status = self.handle.poll()
        for event in self.handle.events():
            self._take(event)
        if status is not None and not self.has_ended:
            self.failure = Failure.of_exit(self.spec.task.name, status, self.handle.remark())

    @property
    def is_awaited(self) -> bool:
        """Whether it has still to become ready."""
        return not (self.is_ready or self.has_ended)

    def describe_start(self) -> str:
        """How far it came before it was ready."""
        silence = "it does not run yet" if self.handle.began is None else "no sign of life"
        state = "it runs, but waits for others" if self.is_alive else silence
        remark = self.handle.remark()
        return f"{self.spec.task.name} ({state}{f'; {remark}' if remark else ''})"

    def _take(self, event: TaskEvent) -> None:
        self.is_alive = True
        match event.kind:
            case "ready":
                self.is_ready = True
            case "progress":
                self.is_ready = True
                if self._forwards_progress:
                    report_progress(**event.values)
            case "error":
                self.failure = Failure.of_error(self.spec.task.name, event.values)
            case "done":
                self.is_done = True
