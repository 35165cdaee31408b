"""A compiled pipeline, and the lines in the logs of its steps that are for programs."""

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

from pipeline.records.summary import RunSummary, State, Status
from pipeline.runs.observer import PushedVersion
from trainer_module.errors import ConfigError

MAX_BYTES = 60_000
"""The most that a packed argument may take. Linux allows 131,071 bytes, and all arguments together
are in one object of Kubernetes, which may take 1.5 MB."""


def pack(content: bytes) -> str:
    """Gzip, then base64 in the alphabet of URLs; the same content gives the same text."""
    return base64.urlsafe_b64encode(gzip.compress(content, mtime=0)).decode()


def pack_argument(content: bytes, name: str) -> str:
    """Packs an argument of a container.

    Args:
      content: the argument.
      name: the step, for the message.

    Raises:
      ConfigError: it is too large.
    """
    packed = pack(content)
    if len(packed) > MAX_BYTES:
        raise ConfigError(
            f"{name}: what this step has to be told takes {len(packed):,} bytes, packed; a "
            f"container can be told {MAX_BYTES:,}: make the config smaller, for example with "
            "fewer columns in `features` or fewer `evaluate.slices`"
        )
    return packed


def unpack(packed: str) -> bytes:
    """Returns the content that `pack` packed."""
    return gzip.decompress(base64.urlsafe_b64decode(packed))


if TYPE_CHECKING:
    from pipeline.runs.console import RunConsole

SETUP = "Begin"
"""The step that checks data and stores, and reads the spans that are new."""
FINALIZE = "Conclude"
"""The step that writes the summary, also if others failed."""
REPORT_MARK = "scopeline-report: "
"""Begins the line of a step's log that is for programs."""
SUMMARY_MARK = "scopeline-summary: "
"""Begins the line of the last step's log that holds the run's whole summary."""
PROGRESS_MARK = "scopeline-progress: "
"""Begins the lines of a step's log that hold its progress."""
REPORT_SECONDS = 2
"""The least time between two lines of progress."""
_MARKS = "|".join((REPORT_MARK, SUMMARY_MARK, PROGRESS_MARK))
_MARKED = re.compile(f"(?:{_MARKS})[^\\n]*\\n?".encode())

ParameterValue = int | str
Parameters = dict[str, ParameterValue]
"""Those of a run, by name."""
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class CompiledPipeline:
    """A pipeline in Kubeflow's own format."""

    name: str
    """The pipeline's name there."""
    yaml: str
    """The specification; the same config gives the same bytes."""
    steps: dict[str, str]
    """By the task's name there, the id of the TFX node that it runs, in topological order; the
    first is `SETUP`, the last `FINALIZE`."""
    parameters: Parameters
    """What can be set per run, with defaults."""

    @property
    def version(self) -> str:
        """Names this content: `digits-1f0c2d3e4a5b`."""
        return f"{self.name}-{hashlib.sha256(self.yaml.encode()).hexdigest()[:12]}"


class NodeValues(BaseModel):
    """The parts of a node that are known only when a run begins, packed."""

    parameters: str
    """Execution properties: the span, the epochs, the revision of the kept schema."""
    inputs: str
    """Where inputs come from: of a resolver also its window of spans."""


class ComponentResult(BaseModel):
    """What a component left behind, for the last step, which needs no TFX then."""

    summary: dict[str, Any] = {}
    """The fields of the run's summary that the component fills, as JSON."""
    examples: str | None = None
    """Where the examples are, if it made them."""
    model: str | None = None
    """Where the model is, if it made that."""
    pushed: PushedVersion | None = None
    """What it pushed, if it did."""


class StepReport(BaseModel):
    """How a step ended, in one line of its log."""

    step: str
    """The id of its node, `SETUP` or `FINALIZE`."""
    state: State
    seconds: float
    detail: str = ""
    """One line for people; the error if it failed."""
    is_shown: bool = True
    """Whether people are shown it: resolvers are not."""
    status: Status | None = None
    """What the run's status becomes, if it failed."""
    has_drifted: bool = False
    """Whether it failed for drift of the data and nothing else."""
    execution: int | None = None
    """Its execution's id in the metadata."""
    found: ComponentResult = ComponentResult()
    """Stands in the file alone, not in the log."""


class StepProgress(BaseModel):
    """How far a step has come, in one line of its log."""

    message: str
    """For people: `epoch 3 of 12`."""
    done: int | None = None
    total: int | None = None
    detail: str = ""


class ProgressLines(logging.Handler):
    """Writes a component's progress into the step's log, for `kubeflow_runner.py` to read."""

    def __init__(self, console: RunConsole) -> None:
        """Prepares to write.

        Args:
          console: that of the step, whose lines are its log.
        """
        super().__init__()
        self._console = console
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless one was written a moment ago and more are to come."""
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
        )
        self._console.write(PROGRESS_MARK + progress.model_dump_json())


def read_report(log: str) -> StepReport | None:
    """Returns the last report in a step's log; None if there is none."""
    return _read_last(log, REPORT_MARK, StepReport)


def read_summary(log: str) -> RunSummary | None:
    """Returns the run's summary in the log of `FINALIZE`; None if there is none."""
    return _read_last(log, SUMMARY_MARK, RunSummary)


def read_progress(log: str) -> StepProgress | None:
    """Returns the last progress in a step's log; None if there is none."""
    return _read_last(log, PROGRESS_MARK, StepProgress)


def without_marked(log: bytes) -> bytes:
    """Returns a log without what is for programs, which may follow other text in its line."""
    return _MARKED.sub(b"", log)


def _read_last(log: str, mark: str, kind: type[Model]) -> Model | None:
    for line in reversed(log.splitlines()):
        _, found, text = line.partition(mark)
        if found:
            try:
                return kind.model_validate_json(text)
            except ValidationError:
                continue
    return None
