"""What is known of a run of a compiled pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kfp_values import Values


class State(StrEnum):
    """What became of a task or a run."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


@dataclass
class Attempt:
    """One pod."""

    number: int
    command: list[str]
    environment: dict[str, str]
    log_path: Path
    started: float
    exit_code: int | None = None
    timed_out: bool = False

    @property
    def log(self) -> str:
        """What it wrote."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""


@dataclass
class TaskRun:
    """A task of a run."""

    name: str
    state: State = State.SKIPPED
    inputs: Values = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    error: str = ""
    """Why no pod could start, in the words of the driver or of Kubernetes."""
    started: float = 0.0
    ended: float = 0.0

    @property
    def log(self) -> str:
        """That of the last attempt."""
        return self.attempts[-1].log if self.attempts else ""

    @property
    def is_running(self) -> bool:
        """Whether it has begun, and has not come to its end yet."""
        return self.started > 0 and self.ended == 0


@dataclass
class Run:
    """A run that has ended."""

    run_id: str
    state: State
    tasks: dict[str, TaskRun]
    """All containers and DAGs, by the task's name."""

    def report(self) -> str:
        """What failed, with its log: for assertions."""
        lines = [f"run {self.run_id}: {self.state}"]
        for task in self.tasks.values():
            lines.append(f"{task.name}: {task.state}, attempts {len(task.attempts)} {task.error}")
            if task.state == State.FAILED:
                lines += [f"    {line}" for line in task.log.splitlines()[-40:]]
        return "\n".join(lines)
