"""`summary.json`: a run's outcome, for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, PlainSerializer

from components.disk import write_whole
from pipeline.data.spans import Window
from pipeline.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_BLESSED,
    EXIT_NOT_PUSHED,
    EXIT_PUSHED,
    EXIT_UNUSABLE,
)
from trainer_module.errors import ConfigError, DataError, ScopelineError, TryLaterError, counted

# JSON has no NaN and no infinities.
Number = Annotated[
    float,
    BeforeValidator(lambda v: math.nan if v is None else v),
    PlainSerializer(lambda v: v if math.isfinite(v) else None, when_used="json"),
]


class Status(StrEnum):
    """How a run ended."""

    RUNNING = "running"
    """It has not ended, or it was killed: then no process of it is left."""
    PUSHED = "pushed"
    VALIDATED = "validated"
    """The data was read and checked; no more was asked for."""
    TUNED = "tuned"
    """Better values were searched for; no more was asked for."""
    NOT_BLESSED = "not_blessed"
    HELD = "held"
    """The model was blessed; a hold kept it from being pushed."""
    WAITS = "waits"
    """The model was blessed, and waits for somebody's approval."""
    SUPERSEDED = "superseded"
    """The model was blessed; that of a run which began later was pushed before it."""
    FAILED = "failed"
    UNUSABLE = "unusable"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        """What the command line returns."""
        return {
            Status.PUSHED: EXIT_PUSHED,
            Status.VALIDATED: EXIT_PUSHED,
            Status.TUNED: EXIT_PUSHED,
            Status.NOT_BLESSED: EXIT_NOT_BLESSED,
            Status.HELD: EXIT_NOT_PUSHED,
            Status.WAITS: EXIT_NOT_PUSHED,
            Status.SUPERSEDED: EXIT_NOT_PUSHED,
            Status.UNUSABLE: EXIT_UNUSABLE,
            Status.INTERRUPTED: EXIT_INTERRUPTED,
        }.get(self, EXIT_FAILED)

    @classmethod
    def after(cls, error: ScopelineError) -> Status:
        """Returns how a run ends that an error stops.

        What is only busy or away has failed: that passes, while what is unusable is not tried again
        before the config or the data has changed.
        """
        is_unusable = isinstance(error, (ConfigError, DataError))
        return cls.UNUSABLE if is_unusable and not isinstance(error, TryLaterError) else cls.FAILED


class State(StrEnum):
    """What became of a component in a run."""

    RAN = "ran"
    CACHED = "cached"
    SKIPPED = "skipped"
    FAILED = "failed"


class ComponentSummary(BaseModel):
    """One component of the run."""

    name: str
    state: State
    seconds: float


class MetricSummary(BaseModel):
    """One metric of the whole eval split."""

    value: Number
    in_service: Number | None
    """The same of the model to beat; None if there is none."""
    needs: str
    """What the thresholds ask, in words; empty if nothing."""
    ok: bool
    """Whether nothing was found against it, on no slice either."""
    interval: tuple[Number, Number] | None = None
    """Where the value is, as sure as `evaluate.confidence` says."""
    difference: tuple[Number, Number] | None = None
    """Where the value less that in service is, likewise."""


@dataclass(frozen=True)
class EvaluationReport:
    """What was measured and decided."""

    blessed: bool
    reason: str
    metrics: dict[str, MetricSummary]
    slices: dict[str, dict[str, float]]
    """Slice, such as `plan=gold`, to its metrics and its `example_count`; NaN if undefined."""
    notes: list[str]
    nearly_perfect: str | None = None
    """The first metric that is nearly as good as it can be."""


class WindowSummary(BaseModel):
    """The spans that the run trains on, by date, hour or number."""

    spans: list[str]
    newest: str

    @classmethod
    def of(cls, window: Window) -> WindowSummary:
        """Returns the summary of a window."""
        return cls(spans=[span.name for span in window.spans], newest=str(window.newest))


class ColumnSummary(BaseModel):
    """One column, and what it is to the model."""

    settings: dict[str, Any]
    """As `features` in a config would have them."""
    reason: str


class AgreementSummary(BaseModel):
    """How far the answers by one way are from those expected."""

    largest_difference: float | None
    """None where there is no number for it, as of text."""
    row: str
    output: str


class CertificateSummary(BaseModel):
    """How far all ways of asking the model agree."""

    tolerance: float
    rows: int
    expected_by: str
    ways: dict[str, AgreementSummary]
    failure: str

    @property
    def gist(self) -> str:
        """All of it in a few words."""
        largest = max((way.largest_difference or 0.0 for way in self.ways.values()), default=0.0)
        ways = len({*self.ways, self.expected_by})
        apart = f", at most {largest:.1g} apart" if largest else ""
        said = f"{counted(ways, 'interface')} ({counted(self.rows, 'row')}{apart})"
        return f"same answers from {said}"


@dataclass(frozen=True)
class Candidate:
    """A blessed model, before it is pushed."""

    model: str
    """The uri of the Model artifact."""
    model_id: int
    model_created: int
    """When the artifact was recorded, in milliseconds since 1970."""
    exported: str
    """The folder to push, from that of the pipeline."""
    certificate: str = ""
    """The folder of its InfraBlessing, likewise; empty if there is none."""
    variants: str | None = None
    """The folder of the artifact of its variants, likewise."""


@dataclass(frozen=True, kw_only=True)
class WaitingSummary(Candidate):
    """A blessed model that was not pushed."""

    version: int
    """What it is approved by."""
    status: Status
    """HELD, WAITS or SUPERSEDED."""
    reason: str


class ErrorSummary(BaseModel):
    """Why a run ended early."""

    component: str | None
    message: str
    log: str


class RunSummary(BaseModel):
    """The whole of `summary.json`."""

    run_id: str
    pipeline: str
    status: Status = Status.RUNNING
    started: str
    seconds: float = 0.0
    strategy: str
    replicas: int | None = None
    components: list[ComponentSummary] = []
    window: WindowSummary | None = None
    examples: dict[str, int] = {}
    """By split, of the newest span where the data comes in spans."""
    columns: dict[str, ColumnSummary] = {}
    """What each column is to the model."""
    anomalies: list[str] = []
    drift: list[str] = []
    notes: list[str] = []
    tuning: dict[str, Any] = {}
    """What the search found: `values` of the best trial, and all `trials`, the best first."""
    training: dict[str, Any] = {}
    metrics: dict[str, MetricSummary] = {}
    slices: dict[str, dict[str, Number]] = {}
    certificate: CertificateSummary | None = None
    variants: dict[str, Any] = {}
    """Of the model: each with its sizes, metrics, figures, and whether and why it is refused."""
    blessed: bool | None = None
    reason: str | None = None
    pushed: str | None = None
    waiting: WaitingSummary | None = None
    error: ErrorSummary | None = None

    def write(self, path: Path) -> None:
        """Writes the file whole, replacing an earlier state of it."""
        write_whole(path, self.model_dump_json(indent=2) + "\n")
