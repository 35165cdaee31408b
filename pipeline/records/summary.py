"""The content of `summary.json`, with the result of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticSerializationError, to_json

from components.disk import write_atomically
from components.json_numbers import Number
from pipeline.credentials import mask_credentials
from pipeline.data.spans import Window
from pipeline.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_BLESSED,
    EXIT_NOT_PUSHED,
    EXIT_PUSHED,
    EXIT_UNUSABLE,
)
from pipeline.records.details import RunDetails
from trainer_module.errors import ConfigError, DataError, ScopelineError, TryLaterError, counted


def _as_unicode(text: str) -> str:
    r"""Returns a text in which half surrogate pairs are codes such as `\udcff`.

    Python decodes bytes that are not UTF-8, as in names of files, to such characters.
    """
    return text.encode(errors="backslashreplace").decode()


def _as_shown(message: Any) -> Any:
    """Returns a message in Unicode and without credentials; other values, which are no messages,
    are not changed.
    """
    return mask_credentials(_as_unicode(message)) if isinstance(message, str) else message


class Status(StrEnum):
    """The result of a run."""

    RUNNING = "running"
    """The run is in progress, or its process was killed."""
    PUSHED = "pushed"
    VALIDATED = "validated"
    """The data was read and checked; the run was not requested to do more."""
    TUNED = "tuned"
    """The search for better values ended; the run was not requested to do more."""
    NOT_BLESSED = "not_blessed"
    HELD = "held"
    """The model was blessed, but not pushed because of a hold."""
    WAITS = "waits"
    """The model was blessed, and waits for approval."""
    SUPERSEDED = "superseded"
    """The model was blessed, but not pushed, as a run that started later has pushed already."""
    FAILED = "failed"
    UNUSABLE = "unusable"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        """The exit code of the command that started the run."""
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
        """Returns the status of a run that an error ends.

        The scheduler retries failed runs, for example if a resource was busy or unreachable. It
        does not retry unusable runs until the config or the data has changed.
        """
        is_unusable = isinstance(error, (ConfigError, DataError))
        return cls.UNUSABLE if is_unusable and not isinstance(error, TryLaterError) else cls.FAILED


class State(StrEnum):
    """The state of a component in a run."""

    RAN = "ran"
    CACHED = "cached"
    SKIPPED = "skipped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def has_result(self) -> bool:
        """Whether the component has ended by itself, without an error."""
        return self not in (State.FAILED, State.INTERRUPTED)

    @property
    def has_duration(self) -> bool:
        """Whether the component was executed, so that its duration is of interest."""
        return self not in (State.CACHED, State.SKIPPED)


class ComponentSummary(BaseModel):
    """The state and duration of a component."""

    name: str
    state: State
    seconds: float
    started: str | None = None
    """The time of the start with its UTC offset, or None in summaries of older versions."""


class MetricSummary(BaseModel):
    """The value of a metric on the whole eval split, with its bounds."""

    value: Number
    in_service: Number | None
    """The value of the model in service, or None if there is no model in service."""
    needs: str
    """The requirements of the thresholds in words, or an empty string without a threshold."""
    ok: bool
    """Whether the metric meets its requirements, including those on slices."""
    interval: tuple[Number, Number] | None = None
    """The confidence interval of the value at the level `evaluate.confidence`."""
    difference: tuple[Number, Number] | None = None
    """The confidence interval of the difference to the model in service."""


@dataclass(frozen=True)
class EvaluationReport:
    """The metrics and the verdict of the Evaluator."""

    blessed: bool
    reason: str
    metrics: dict[str, MetricSummary]
    slices: dict[str, dict[str, float]]
    """The metrics and the `example_count` by slice, such as `plan=gold`, or NaN if undefined."""
    notes: list[str]
    nearly_perfect: str | None = None
    """The first metric whose value is nearly perfect, or None if there is no such metric."""


class WindowSummary(BaseModel):
    """The spans that the run trains on, by date, hour or number."""

    spans: list[str]
    newest: str

    @classmethod
    def of(cls, window: Window) -> WindowSummary:
        """Returns the summary of a window."""
        return cls(spans=[span.name for span in window.spans], newest=str(window.newest))


class ColumnSummary(BaseModel):
    """The inferred type of a column, with the reason."""

    settings: dict[str, Any]
    """The settings of the column, in the form of `features` in a config."""
    reason: str


class AgreementSummary(BaseModel):
    """The largest difference of an interface's predictions from the expected predictions."""

    largest_difference: float | None
    """The absolute or relative difference, or None if the predictions are no numbers."""
    row: str
    output: str


class CertificateSummary(BaseModel):
    """The certificate: the agreement between the predictions of all serving interfaces."""

    tolerance: Number
    rows: int
    expected_by: str
    ways: dict[str, AgreementSummary]
    failure: str

    @property
    def gist(self) -> str:
        """A summary of the certificate in a few words."""
        largest = max((way.largest_difference or 0.0 for way in self.ways.values()), default=0.0)
        interfaces = len({*self.ways, self.expected_by})
        # Smaller differences are rounding errors of float32.
        difference = f", differences at most {largest:.1g}" if largest > 1e-6 else ""
        extent = f"{counted(interfaces, 'interface')} ({counted(self.rows, 'row')}{difference})"
        return f"same predictions from {extent}"


@dataclass(frozen=True)
class Candidate:
    """The artifacts of a blessed model that may be pushed later."""

    model: str
    """The URI of the Model artifact."""
    model_id: int
    model_created: int
    """The creation time of the artifact, in milliseconds since 1970."""
    exported: str
    """The folder to push, relative to the pipeline's folder."""
    certificate: str = ""
    """The folder of the InfraBlessing, relative to the pipeline's folder, or an empty string
    without a certificate.
    """
    variants: str | None = None
    """The folder of the artifact with variants, relative to the pipeline's folder, or None without
    variants.
    """


@dataclass(frozen=True, kw_only=True)
class WaitingSummary(Candidate):
    """A blessed model that was not pushed."""

    version: int
    """The number by which `scopeline approve` identifies the model."""
    status: Status
    """HELD, WAITS or SUPERSEDED."""
    reason: str


class ErrorSummary(BaseModel):
    """The error with which a run ended early."""

    component: str | None
    message: Annotated[str, BeforeValidator(_as_shown)]
    log: str


class RunSummary(BaseModel):
    """The content of `summary.json`."""

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
    """The number of examples by split. For data in spans, only the newest span counts."""
    columns: dict[str, ColumnSummary] = {}
    """The inferred types of columns."""
    anomalies: list[str] = []
    drift: list[str] = []
    notes: list[str] = []
    tuning: dict[str, Any] = {}
    """The result of the search: `values` of the best trial, and `trials`, beginning with the best.
    """
    training: dict[str, Any] = {}
    metrics: dict[str, MetricSummary] = {}
    slices: dict[str, dict[str, Number]] = {}
    certificate: CertificateSummary | None = None
    variants: dict[str, Any] = {}
    """The variants of the model, with sizes, metrics, latencies, and reasons if not accepted."""
    blessed: bool | None = None
    reason: str | None = None
    pushed: str | None = None
    waiting: WaitingSummary | None = None
    error: ErrorSummary | None = None
    details: RunDetails | None = None
    """The further content of the report, or None while the run is in progress."""

    def write(self, path: Path) -> None:
        """Writes the file atomically."""
        text = _to_json(self, 2, {"details"})
        # The details have thousands of numbers, for which a line each would hide all other fields.
        details = "null" if self.details is None else _to_json(self.details)
        write_atomically(path, f'{text.removesuffix("}").rstrip()},\n  "details": {details}\n}}\n')


def _to_json(record: BaseModel, indent: int | None = None, exclude: set[str] | None = None) -> str:
    """Returns a record as JSON, with codes instead of half surrogate pairs."""
    try:
        return record.model_dump_json(indent=indent, exclude=exclude)
    except PydanticSerializationError:
        values = _without_surrogates(record.model_dump(exclude=exclude))
        return to_json(values, indent=indent, inf_nan_mode="null").decode()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(child) for child in value]
    return _as_unicode(value) if isinstance(value, str) else value
