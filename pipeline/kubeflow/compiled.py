"""A compiled pipeline, and the machine-readable lines in the logs of its steps."""

from __future__ import annotations

import base64
import gzip
import hashlib
import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from components.evaluator.explanation.record import Explanation
from pipeline.records.details import StepCost
from pipeline.records.summary import RunSummary, State, Status
from pipeline.runs.observer import PushedVersion
from trainer_module.errors import ConfigError

MAX_BYTES = 60_000
"""The maximum size of a packed argument in bytes. Linux allows 131,071 bytes per argument. All
arguments together are in one Kubernetes object, which may have 1.5 MB.
"""


def pack(content: bytes) -> str:
    """Returns gzip-compressed content in URL-safe base64; equal contents give equal strings."""
    return base64.urlsafe_b64encode(gzip.compress(content, mtime=0)).decode()


def pack_argument(content: bytes, name: str) -> str:
    """Returns a packed argument of a container.

    Args:
      name: the step, for the message.

    Raises:
      ConfigError: the argument is too large.
    """
    packed = pack(content)
    if len(packed) > MAX_BYTES:
        raise ConfigError(
            f"{name}: the packed arguments of this step have {len(packed):,} bytes; a container "
            f"takes at most {MAX_BYTES:,}: make the config smaller, for example with fewer columns "
            "in `features` or fewer `evaluate.slices`"
        )
    return packed


def unpack(packed: str) -> bytes:
    """Returns the content that `pack` packed."""
    return gzip.decompress(base64.urlsafe_b64decode(packed))


if TYPE_CHECKING:
    from pipeline.runs.console import RunConsole

SETUP = "Begin"
"""The step that checks data and stores, and reads new spans."""
FINALIZE = "Conclude"
"""The step that writes the summary, even if other steps failed."""
REPORT_MARK = "scopeline-report: "
"""The beginning of the line with the report of a step."""
SUMMARY_MARK = "scopeline-summary: "
"""The beginning of the line with the run's whole summary, in the last step's log."""
PROGRESS_MARK = "scopeline-progress: "
"""The beginning of lines with the progress of a step."""
REPORT_SECONDS = 5
"""The minimum time between two lines of progress."""
_MARKS = "|".join((REPORT_MARK, SUMMARY_MARK, PROGRESS_MARK))
_MARKED = re.compile(f"(?:{_MARKS})[^\\n]*\\n?".encode())

ParameterValue = int | str
Parameters = dict[str, ParameterValue]
"""The values of a run's parameters by name."""
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class CompiledPipeline:
    """A pipeline in Kubeflow's own format."""

    name: str
    """The pipeline's name on Kubeflow."""
    yaml: str
    """The specification; equal configs give equal bytes."""
    steps: dict[str, str]
    """The TFX nodes by the task's name on Kubeflow, in topological order; the first is `SETUP`, the
    last `FINALIZE`.
    """
    parameters: Parameters
    """The parameters of runs with their defaults."""

    @property
    def version(self) -> str:
        """The name of the version, from a hash of the content, such as `digits-1f0c2d3e4a5b`."""
        return f"{self.name}-{hashlib.sha256(self.yaml.encode()).hexdigest()[:12]}"


class NodeValues(BaseModel):
    """The packed parts of a node that are known only when a run begins."""

    parameters: str
    """Execution properties: the span, the epochs, the revision of the kept schema."""
    inputs: str
    """The sources of inputs; for a resolver, also the window of spans."""


class ComponentResult(BaseModel):
    """The results of a component for the last step, which then needs no TFX."""

    summary: dict[str, Any] = {}
    """The fields of the run's summary that the component fills, as JSON."""
    examples: str | None = None
    """The URI of the examples, if the component made them."""
    model: str | None = None
    """The URI of the model, if the component made it."""
    pushed: PushedVersion | None = None
    """The pushed version, if the component pushed one."""
    rows: dict[str, int] = {}
    """The number of rows by split, if the component made examples."""
    explanation: Explanation | None = None
    """The explanation of the model, if the component wrote one."""
    cost: StepCost | None = None
    """The cost of the component, or None for a resolver and on a system without /proc."""


class StepReport(BaseModel):
    """The outcome of a step, in one line of its log."""

    step: str
    """The id of the node, or `SETUP` or `FINALIZE`."""
    state: State
    seconds: float
    detail: str = ""
    """A line for the console; the error if the step failed."""
    is_shown: bool = True
    """Whether the console shows the step; false for resolvers."""
    status: Status | None = None
    """The status of the run, if the step failed."""
    has_drifted: bool = False
    """Whether the step failed only because of drift."""
    ended: float | None = None
    """The end of the step in seconds since 1970, or None in reports of older versions."""
    execution: int | None = None
    """The id of the execution in the metadata."""
    found: ComponentResult = ComponentResult()
    """The results of the component. Only the file of the report has them, not the log."""


class StepProgress(BaseModel):
    """The progress of a step, in one line of its log."""

    message: str
    """A message for the console: `epoch 3 of 12`."""
    done: float | None = None
    total: float | None = None
    detail: str = ""
    left: str = ""
    """The words before the time left, as in `report_step`."""


class ProgressLines(logging.Handler):
    """A log handler that writes progress into the step's log, for `kubeflow_runner.py`."""

    def __init__(self, console: RunConsole) -> None:
        """Stores the console of the step.

        Args:
          console: the console of the step, whose lines are its log.
        """
        super().__init__()
        self._console = console
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless a line was written a moment ago and more lines follow."""
        done, total = getattr(record, "done", None), getattr(record, "total", None)
        is_last = done is not None and done == total
        if time.monotonic() < self._next and not is_last:
            return
        self._next = time.monotonic() + REPORT_SECONDS
        progress = StepProgress(
            message=record.getMessage(),
            done=done,
            total=total,
            detail=getattr(record, "detail", ""),
            left=getattr(record, "left", ""),
        )
        self._console.write(PROGRESS_MARK + progress.model_dump_json())


def read_report(log: str) -> StepReport | None:
    """Returns the last report in a step's log, or None."""
    return _read_last(log, REPORT_MARK, StepReport)


def read_summary(log: str) -> RunSummary | None:
    """Returns the run's summary in the log of `FINALIZE`, or None."""
    return _read_last(log, SUMMARY_MARK, RunSummary)


def read_progress(log: str) -> StepProgress | None:
    """Returns the last progress in a step's log, or None."""
    return _read_last(log, PROGRESS_MARK, StepProgress)


def without_records(log: bytes) -> bytes:
    """Returns a log without machine-readable lines, which may follow other text in a line."""
    return _MARKED.sub(b"", log)


def _read_last(log: str, mark: str, kind: type[Model]) -> Model | None:
    for line in reversed(log.splitlines()):
        _, separator, text = line.partition(mark)
        if separator:
            try:
                return kind.model_validate_json(text)
            except ValidationError:
                continue
    return None
