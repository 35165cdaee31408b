"""The sections `schedule`, `drift` and `skew`: triggers of runs, window, and retention."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from components.example_gen.paths import is_remote, pattern_fault
from pipeline.config.issues import Issue, rules_of
from pipeline.config.sections.data import (
    DataSettings,
    has_spans,
    span_kind,
)
from trainer_module.settings import (
    Settings,
)
from trainer_module.settings.durations import Duration, SomeTime

CRON_FIELDS = 5
CRON_HELP = (
    "expected five fields: minute, hour, day of month, month and day of week, such as `0 3 * * *` "
    "for 3:00 every night"
)


class MissingSpan(StrEnum):
    """The reaction to a gap in the window, or to a span without examples."""

    FAIL = "fail"
    """The run fails."""
    SKIP = "skip"
    """The run trains on the other spans of the window."""


class WindowSettings(Settings):
    """The spans to train on, up to the newest; set exactly one of the three keys."""

    last: PositiveInt | None = None
    """The number of newest spans: days if `data.path` contains a date, hours if it contains
    `{HH}`.
    """
    all: bool = False
    """Whether to train on every span."""
    since: date | NonNegativeInt | None = None
    """The first span: a date if `data.path` contains a date, otherwise a number. If spans are
    hours, the window begins with the first hour of that date.
    """

    @model_validator(mode="after")
    def _one_of_three(self) -> WindowSettings:
        are_set = [self.last is not None, self.all, self.since is not None]
        if sum(are_set) != 1:
            raise ValueError(
                "expected exactly one key, as in {last: 7}, {all: true} or {since: 2026-01-01}"
            )
        return self


class RetrySettings(Settings):
    """The retries of failed runs; runs with unusable data or config are not retried."""

    attempts: PositiveInt = 3
    """The largest number of runs, the first run included."""
    backoff: Duration = timedelta(minutes=5)
    """The wait before the second run; the wait doubles for each further run."""


ALL: Literal["all"] = "all"
"""The value of the keys of `keep` for which nothing is deleted."""


class KeepSettings(Settings):
    """The numbers of versions and runs to keep; the model in service and its baseline are never
    deleted.
    """

    versions: PositiveInt | Literal["all"] = 10
    """The number of newest pushed versions to keep; `all` deletes none."""
    runs: PositiveInt | Literal["all"] = 30
    """The number of newest runs to keep, with their artifacts and metadata; `all` deletes none."""


class ScheduleSettings(Settings):
    """The triggers of runs, the spans to train on, and the versions and runs to keep."""

    cron: str | None = Field(default=None, examples=["0 3 * * *"])
    """The times of runs, as a cron expression with five fields: minute, hour, day of month, month,
    day of week.
    """
    on_new_data: bool = False
    """Whether to retrain when `data.path` has a new span, a new version of a span, or changed
    files.
    """
    poll: SomeTime = timedelta(minutes=5)
    """The interval between checks for new data."""
    settle: Duration = timedelta(minutes=1)
    """The time since the last change after which a file counts as completely written."""
    timezone: str = "UTC"
    """The time zone of `cron`, such as Europe/Paris."""
    window: WindowSettings = WindowSettings(last=1)
    """The spans to train on; default: the newest span, and a note with the number of older spans.
    """
    missing_span: MissingSpan = MissingSpan.FAIL
    """The reaction to a gap in the window, or to a span without examples."""
    warm_start: bool = False
    """Whether to start from the weights of the latest blessed model."""
    retry: RetrySettings = RetrySettings()
    timeout: SomeTime = timedelta(hours=24)
    """The duration after which a run is stopped and counts as failed."""
    keep: KeepSettings = KeepSettings()

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, cron: str | None) -> str | None:
        if cron is None:
            return None
        if len(cron.split()) != CRON_FIELDS:
            raise ValueError(f"the expression has {len(cron.split())} fields; {CRON_HELP}")
        try:
            next(CronSim(cron, datetime(2026, 1, 1)))
        except CronSimError as error:
            raise ValueError(f"{error}; {CRON_HELP}") from None
        except StopIteration:
            raise ValueError("no date matches; check the day of month and the month") from None
        return cron

    @field_validator("timezone")
    @classmethod
    def _is_time_zone(cls, name: str) -> str:
        if name not in available_timezones():
            near = difflib.get_close_matches(name, available_timezones(), n=1)
            hint = f"did you mean `{near[0]}`?" if near else "give a name such as Europe/Paris"
            raise ValueError(f"there is no such time zone; {hint}")
        return name

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of `cron`."""
        return ZoneInfo(self.timezone)


class OnDrift(StrEnum):
    """The reaction to drift of a span."""

    RETRAIN = "retrain"
    """A run becomes due, even if `cron` and `on_new_data` are not set."""
    WARN = "warn"
    """The run adds a note."""
    FAIL = "fail"
    """The span is refused, like a span with anomalies, until `scopeline spans accept` accepts it.
    """


class DriftThreshold(Settings):
    """The largest distance between two distributions of a column, measured by TFDV."""

    infinity_norm: float | None = Field(default=None, gt=0, le=1)
    """The largest change in the share of any value, for categorical columns."""
    jensen_shannon: float | None = Field(default=None, gt=0, le=1)
    """The largest Jensen-Shannon divergence, for numeric or categorical columns."""

    @model_validator(mode="after")
    def _one_of_two(self) -> DriftThreshold:
        if (self.infinity_norm is None) == (self.jensen_shannon is None):
            raise ValueError("expected exactly one of infinity_norm and jensen_shannon")
        return self


class DriftSettings(Settings):
    """The comparison of each span with the last earlier span that passed all checks."""

    columns: dict[str, DriftThreshold] = Field(
        default={}, examples=[{"payment_type": {"infinity_norm": 0.1}}]
    )
    """Thresholds by column, such as {payment_type: {infinity_norm: 0.1}}."""
    on_drift: OnDrift = OnDrift.WARN
    """The reaction to a distance above the threshold: `warn` adds a note, `retrain` also makes a
    run due, `fail` refuses the span until `scopeline spans accept` accepts it.
    """


TRIGGERS = (
    "add schedule.cron: 0 3 * * *, schedule.on_new_data: true, drift.on_drift: retrain with "
    "drift.columns, or skew.on_skew: retrain with skew.requests and skew.columns"
)
_SPANS = "such as data/{SPAN}/*.csv or data/{YYYY}-{MM}-{DD}/*.csv"


def spans_are_named_in_full(data: DataSettings) -> Iterator[Issue]:
    """Checks that placeholders of spans are complete, such as an hour with its date."""
    keys = {"data.path": data.path}
    keys |= {f"data.splits.{name}": str(glob) for name, glob in data.splits.items()}
    for key, pattern in keys.items():
        if fault := pattern_fault(pattern):
            yield Issue(key, f"{pattern}: {fault}")


def schedule_has_an_occasion(
    schedule: ScheduleSettings | None, has_trigger: bool
) -> Iterator[Issue]:
    """Checks that a schedule has a trigger, unless all its keys apply to manual runs too."""
    keys_of_manual_runs = {"window", "missing_span", "settle", "warm_start", "keep"}
    if schedule is None or has_trigger or schedule.model_fields_set <= keys_of_manual_runs:
        return
    yield Issue("schedule", f"the schedule has no trigger; {TRIGGERS}")


def windows_need_spans(data: DataSettings, schedule: ScheduleSettings | None) -> Iterator[Issue]:
    """Checks that the window is set only for data with spans."""
    if schedule is None or has_spans(data):
        return
    for key in ("window", "missing_span"):
        if key in schedule.model_fields_set:
            yield Issue(
                f"schedule.{key}",
                f"data.path has no spans; remove this key, or use a path with spans, {_SPANS}",
            )


def window_begins_at_a_span(
    data: DataSettings, schedule_or_default: ScheduleSettings
) -> Iterator[Issue]:
    """Checks that `since` is a date if the spans have dates, and a number otherwise."""
    since, dated = schedule_or_default.window.since, span_kind(data).is_dated
    if since is not None and has_spans(data) and isinstance(since, date) is not dated:
        expected = "a date such as 2026-01-05" if dated else "a number"
        yield Issue(
            "schedule.window.since",
            f"found {since}; expected {expected}, as in the spans at data.path",
        )


def drift_needs_spans(data: DataSettings, drift: DriftSettings) -> Iterator[Issue]:
    """Checks that drift thresholds are set only for data with spans."""
    if drift.columns and not has_spans(data):
        yield Issue(
            "drift.columns",
            "data.path has no spans to compare; remove this key, or use a path with spans, "
            f"{_SPANS}",
        )


def retraining_by_drift_has_thresholds(drift: DriftSettings) -> Iterator[Issue]:
    """Checks that `on_drift: retrain` is set only together with thresholds."""
    if drift.on_drift is OnDrift.RETRAIN and not drift.columns:
        yield Issue(
            "drift.columns",
            "drift.on_drift is retrain, but no column has a threshold; add a column, such as "
            "{payment_type: {infinity_norm: 0.1}}",
        )


SCHEDULE_RULES = rules_of(__name__)


class OnSkew(StrEnum):
    """The reaction to requests that differ from the training data; `history` always shows the
    difference.
    """

    WARN = "warn"
    """`history` shows the difference."""
    RETRAIN = "retrain"
    """A notification is sent, and a run becomes due."""
    NOTIFY = "notify"
    """A notification is sent to the receivers in the section `notify`."""


class SkewSettings(Settings):
    """The comparison of requests with the training data of the model in service."""

    requests: str | None = None
    """The folder of a request log, which `serve --log-requests` writes, or a glob of its files."""
    columns: dict[str, DriftThreshold] = {}
    """Thresholds by column, such as {fare: {jensen_shannon: 0.1}}."""
    on_skew: OnSkew = OnSkew.WARN
    """The reaction to a distance that is significantly above the threshold."""
    min_rows: int = Field(default=1000, ge=100)
    """The smallest number of rows of requests for a comparison."""

    @property
    def is_watched(self) -> bool:
        """Whether the config has both requests and thresholds."""
        return self.requests is not None and bool(self.columns)


def skew_has_requests_and_thresholds(skew: SkewSettings) -> Iterator[Issue]:
    """Checks that `requests` and `columns` are set together, and `requests` is local."""
    if skew.columns and skew.requests is None:
        yield Issue(
            "skew.requests",
            "this key is missing; write the folder of `serve --log-requests`",
        )
    elif skew.requests is not None and is_remote(skew.requests):
        yield Issue("skew.requests", f"found {skew.requests!r}; expected a local folder or glob")
    elif not skew.columns and skew.model_fields_set:
        yield Issue(
            "skew.columns",
            "no column has a threshold; add a column, such as {fare: {jensen_shannon: 0.1}}",
        )


SKEW_RULES = (skew_has_requests_and_thresholds,)
