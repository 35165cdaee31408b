"""The steps of a run: their states, the names of their pods, and their logs.

Kubeflow runs on Argo Workflows and lists Argo's nodes. The node of a step has a child called
`executor`. If steps are retried, the executor has a child for each attempt. The API returns the ids
of a node's children, but not the names of pods. An id ends in a hash of the node's full name, and
the pod's name ends in the same hash. This module finds ids and pods by hashing the possible names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.config.issues import near_match
from pipeline.kubeflow.api.client import Kubeflow, NoLogError, Polling
from pipeline.kubeflow.compiled import without_records
from trainer_module.errors import ConfigError

if TYPE_CHECKING:
    import kfp_server_api as kfp_api

SUCCEEDED, FAILED, SKIPPED, CANCELED = "SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"
ENDED = (SUCCEEDED, FAILED, SKIPPED, CANCELED)
"""The final states of runs and steps."""
_STARTED = (*ENDED, "RUNNING")

_DRIVER = "-driver"
_EXECUTOR = re.compile(r"\.([^.]+)\.executor(?:\((\d+)\))?$")
_ON_EXIT = ".onExit"
_MAX_ATTEMPTS = 30
_TEMPLATES = ("retry-system-container-impl", "system-container-impl")
"""Argo's templates of steps with and without retries, which are part of pods' names."""
TAIL_BYTES = 4 << 20
"""The number of bytes at the end of a log that are kept; the reports of steps are there."""


@dataclass(frozen=True)
class Step:
    """A step that has begun."""

    name: str
    """The task's name in the compiled pipeline."""
    state: str
    started: datetime | None
    ended: datetime | None
    pods: tuple[str, ...] = ()
    """The possible names of the latest attempt's pod, or an empty tuple if there is no pod yet."""

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED

    def seconds(self, now: datetime) -> float:
        """Returns the duration of the step until now or its end, or 0 if it is unknown."""
        until = self.ended or (None if self.has_ended else now)
        if self.started is None or until is None:
            return 0.0
        return max(0.0, (until - self.started).total_seconds())


def read_steps(run: kfp_api.V2beta1Run) -> dict[str, Step]:
    """Returns the steps that have begun, by name, in the order of their start."""
    details = (run.run_details.task_details if run.run_details else None) or []
    tasks = {task.display_name: task for task in details}
    pods = _find_pods(details)
    steps = []
    for name, task in tasks.items():
        driver = tasks.get(f"{name}{_DRIVER}")
        # A group of steps has a driver, too, but also children.
        is_new = driver is not None and not task.child_tasks
        if task.state in _STARTED and (name in pods or is_new):
            steps.append(_step(name, task, pods.get(name, ())))
        elif name.endswith(_DRIVER) and task.state == FAILED:
            # The driver runs before a step; if it fails, the step never begins.
            steps.append(_step(name.removesuffix(_DRIVER), task, ()))
    earliest = datetime.min.replace(tzinfo=UTC)
    return {step.name: step for step in sorted(steps, key=lambda step: step.started or earliest)}


def _step(name: str, task: Any, pods: tuple[str, ...]) -> Step:
    return Step(name, task.state, _moment(task.start_time), _moment(task.end_time), pods)


def _moment(time: datetime | None) -> datetime | None:
    """Returns a time, or None for 1970, which the API uses for unknown times."""
    return time if time is not None and time.year > 1970 else None


def _find_pods(tasks: list[Any]) -> dict[str, tuple[str, ...]]:
    """Returns the possible names of the pod of each step's latest attempt, by step."""
    ids = {child.pod_name for task in tasks for child in task.child_tasks or [] if child.pod_name}
    if not ids:
        return {}
    workflow = next(iter(ids)).rpartition("-")[0]
    parts = {f".{task.display_name}" for task in tasks}
    parts |= {f"({attempt})" for attempt in range(_MAX_ATTEMPTS)}
    latest: dict[str, tuple[int, tuple[str, ...]]] = {}
    unvisited, visited = [(workflow, _hash(workflow))], {workflow}
    while unvisited:
        parent, parent_hash = unvisited.pop()
        # A hook that runs at the end is not always listed among the children.
        if not parent.endswith(_ON_EXIT):
            unvisited.append((parent + _ON_EXIT, _hash(_ON_EXIT, parent_hash)))
        for part in parts:
            name, value = parent + part, _hash(part, parent_hash)
            node = f"{workflow}-{value}"
            if node not in ids or name in visited:
                continue
            visited.add(name)
            unvisited.append((name, value))
            match = _EXECUTOR.search(name)
            if match:
                attempt = -1 if match[2] is None else int(match[2])
                pods = (*(f"{workflow}-{template}-{value}" for template in _TEMPLATES), node)
                latest[match[1]] = max(latest.get(match[1], (-2, ())), (attempt, pods))
    return {step: pods for step, (_, pods) in latest.items()}


def _hash(text: str, prefix_hash: int = 0x811C9DC5) -> int:
    """Returns the 32-bit FNV-1a hash that Argo Workflows uses in the names of nodes.

    Args:
      text: the text to hash.
      prefix_hash: the hash of the text before; default: the hash of an empty text.
    """
    value = prefix_hash
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def stream_log(kubeflow: Kubeflow, run: str, step: Step) -> Iterator[bytes]:
    """Yields the log of a step so far, in pieces; the API always sends the whole log.

    Args:
      step: a step of the run.

    Raises:
      NoLogError: the step has no pod, or no log of its possible pods can be read.
    """
    reason = NoLogError(f"the log of `{step.name}` cannot be read: it has no pod")
    for pod in step.pods:
        pieces = kubeflow.log(run, pod)
        try:
            first = next(pieces)
        except NoLogError as error:
            reason = error
            continue
        yield first
        yield from pieces
        return
    raise reason


def read_log(kubeflow: Kubeflow, run: str, step: Step) -> bytes:
    """Returns the last `TAIL_BYTES` of a step's log so far; raises as `stream_log` does."""
    tail = bytearray()
    for piece in stream_log(kubeflow, run, step):
        tail += piece
        if len(tail) > 2 * TAIL_BYTES:
            del tail[:-TAIL_BYTES]
    return bytes(tail[-TAIL_BYTES:])


def _call_once(call: Callable[[], Any]) -> Any:
    return call()


class LogReader:
    """A reader that writes the logs of a run's steps, each complete line once.

    Machine-readable lines are left out.
    """

    def __init__(
        self, kubeflow: Kubeflow, run: str, step: str | None, write: Callable[[bytes], None]
    ) -> None:
        """Stores the arguments; makes no call.

        Args:
          step: the only step to read, in upper or lower case, or None for all steps, each below its
            name.
          write: the function that writes bytes.
        """
        self._kubeflow = kubeflow
        self._run = run
        self._step = step
        self._write = write
        self._read_bytes: dict[tuple[str, ...], int] = {}
        self._unfinished: dict[tuple[str, ...], bytearray] = {}
        """The incomplete last line of each log, by the names of the log's pods."""
        self._done: set[tuple[str, ...]] = set()
        self._current = ""

    def read(self, polling: Polling | None = None) -> None:
        """Writes the logs so far and, if `polling` is given, the lines that follow.

        Args:
          polling: how to poll until the run has ended; None to read once.

        Raises:
          ConfigError: the run has no such step.
          NoLogError: the log of the only step cannot be read.
        """
        retry = polling.retry if polling else _call_once
        while True:
            run = retry(partial(self._kubeflow.run, self._run))
            steps, is_last = read_steps(run), polling is None or run.state in ENDED
            for step in self._select(steps):
                retry(partial(self._write_new, step, is_last or step.has_ended))
            if polling is None or is_last:
                self._check_found(steps)
                return
            time.sleep(polling.interval)

    def _select(self, steps: dict[str, Step]) -> list[Step]:
        wanted = self._step and self._step.lower()
        return [step for step in steps.values() if step.pods and wanted in (None, step.name)]

    def _check_found(self, steps: dict[str, Step]) -> None:
        names = [step.name for step in steps.values() if step.pods]
        if self._step is not None and self._step.lower() not in names:
            hint = near_match(self._step.lower(), names) if names else "no step has begun"
            raise ConfigError(
                f"--step {self._step}: no step of this name has begun in the run {self._run}; "
                f"{hint}"
            )

    def _write_new(self, step: Step, is_final: bool) -> None:
        """Writes the new lines of a step; at the end also an incomplete last line."""
        if step.pods in self._done:
            return
        error = None
        try:
            self._write_lines(step)
        except NoLogError as reason:
            # The container of the step may not have started yet.
            error = reason
        if not is_final:
            return
        if last_line := self._unfinished.pop(step.pods, None):
            # The name of the next step, or the error, begins a new line.
            self._show(step, bytes(last_line) + (b"" if self._step else b"\n"))
        if error is not None and self._step is not None:
            raise error
        if error is not None:
            self._show(step, f"{error}\n".encode())
        self._done.add(step.pods)

    def _write_lines(self, step: Step) -> None:
        """Writes the new complete lines as they arrive."""
        skip = self._read_bytes.get(step.pods, 0)
        buffer = self._unfinished.setdefault(step.pods, bytearray())
        for piece in stream_log(self._kubeflow, self._run, step):
            new, skip = piece[skip:], max(0, skip - len(piece))
            self._read_bytes[step.pods] = self._read_bytes.get(step.pods, 0) + len(new)
            buffer += new
            if b"\n" in new:
                end = buffer.rfind(b"\n") + 1
                lines = bytes(buffer[:end])
                del buffer[:end]
                self._show(step, lines)

    def _show(self, step: Step, log: bytes) -> None:
        """Writes the readable lines, below the step's name if several steps are read."""
        lines = without_records(log)
        if lines and self._step is None and step.name != self._current:
            self._current = step.name
            self._write(f"== {step.name}\n".encode())
        if lines:
            self._write(lines)
