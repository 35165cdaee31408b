"""The sections `schedule`, `drift` and `skew`: when to retrain, on which spans, what to keep."""

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
    "expected five: minute, hour, day of month, month and day of week, such as `0 3 * * *` for "
    "3 o'clock every night"
)


class MissingSpan(StrEnum):
    """The reaction to a gap in the window, or to a span without examples."""

    FAIL = "fail"
    SKIP = "skip"


class WindowSettings(Settings):
    """The spans to train on, counted back from the newest; give one of the three keys."""

    last: PositiveInt | None = None
    """The number of consecutive spans: days if the path has a date, hours with `{HH}`."""
    all: bool = False
    """Whether to train on every span."""
    since: date | NonNegativeInt | None = None
    """The first span: a date if the path has one (for hours, the first of that day), else a
    number.
    """

    @model_validator(mode="after")
    def _one_of_three(self) -> WindowSettings:
        given = [self.last is not None, self.all, self.since is not None]
        if sum(given) != 1:
            raise ValueError("give one of {last: 7}, {all: true} and {since: 2026-01-01}")
        return self


class RetrySettings(Settings):
    """How failed runs are retried; runs with unusable data or config are not retried."""

    attempts: PositiveInt = 3
    """The number of runs in all, the first included."""
    backoff: Duration = timedelta(minutes=5)
    """The wait before the second run; it doubles each time."""


ALL: Literal["all"] = "all"
"""The value of `keep` with which nothing is deleted."""


class KeepSettings(Settings):
    """The versions and runs that are kept; the model in service and its baseline are never
    deleted.
    """

    versions: PositiveInt | Literal["all"] = 10
    """The number of newest pushed versions to keep; `all` deletes none."""
    runs: PositiveInt | Literal["all"] = 30
    """The number of newest runs to keep, with their artifacts and metadata; `all` deletes none."""


class ScheduleSettings(Settings):
    """The number of newest runs to keep, with their artifacts and metadata; `all` deletes none."""

    cron: str | None = None
    """Cron expression with five fields: minute, hour, day of month, month, day of week."""
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
    """The spans to train on; without this key, a note reports how many spans are not used."""
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
            raise ValueError(f"it has {len(cron.split())} fields; {CRON_HELP}")
        try:
            next(CronSim(cron, datetime(2026, 1, 1)))
        except CronSimError as error:
            raise ValueError(f"{error}; {CRON_HELP}") from None
        except StopIteration:
            raise ValueError("there is no such day in any year") from None
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
    """The reaction to drift between a span and the last span before it that passed."""

    RETRAIN = "retrain"
    """A run becomes due, even without `cron` or `on_new_data`."""
    WARN = "warn"
    FAIL = "fail"
    """The span is refused like one that breaks the schema, until it is accepted."""


class DriftThreshold(Settings):
    """How far the distribution of a column may move, measured by TFDV."""

    infinity_norm: float | None = Field(default=None, gt=0, le=1)
    """The largest change of any value's share, for categorical columns."""
    jensen_shannon: float | None = Field(default=None, gt=0, le=1)
    """The Jensen-Shannon divergence, for numeric or categorical columns."""

    @model_validator(mode="after")
    def _one_of_two(self) -> DriftThreshold:
        if (self.infinity_norm is None) == (self.jensen_shannon is None):
            raise ValueError("give one of infinity_norm and jensen_shannon")
        return self


class DriftSettings(Settings):
    """The comparison of a span with the last span before it that passed."""

    columns: dict[str, DriftThreshold] = {}
    """Thresholds by column: {payment_type: {infinity_norm: 0.1}}."""
    on_drift: OnDrift = OnDrift.WARN
    """The reaction to a distance above the threshold; `fail` leaves the span out until it is
    accepted.
    """


TRIGGERS = (
    "give cron: 0 3 * * *, on_new_data: true, drift.on_drift: retrain with drift.columns, or "
    "skew.on_skew: retrain"
)
_SPANS = "such as data/{SPAN}/*.csv or data/{YYYY}-{MM}-{DD}/*.csv"


def spans_are_named_in_full(data: DataSettings) -> Iterator[Issue]:
    """Checks that patterns are complete: an hour needs a day, a version needs a span."""
    keys = {"data.path": data.path}
    keys |= {f"data.splits.{name}": str(glob) for name, glob in data.splits.items()}
    for key, pattern in keys.items():
        if fault := pattern_fault(pattern):
            yield Issue(key, f"{pattern}: {fault}")


def schedule_has_an_occasion(
    schedule: ScheduleSettings | None, has_trigger: bool
) -> Iterator[Issue]:
    """Checks that something triggers the schedule, unless it has only keys that manual runs use."""
    by_hand = {"window", "missing_span", "settle", "warm_start", "keep"}
    if schedule is None or has_trigger or schedule.model_fields_set <= by_hand:
        return
    yield Issue("schedule", f"the schedule has no trigger; {TRIGGERS}")


def windows_need_spans(data: DataSettings, schedule: ScheduleSettings | None) -> Iterator[Issue]:
    """Checks that a window is given only for data with spans."""
    if schedule is None or has_spans(data):
        return
    for key in ("window", "missing_span"):
        if key in schedule.model_fields_set:
            yield Issue(
                f"schedule.{key}",
                f"data.path has no spans; remove this key, or give a path with spans, {_SPANS}",
            )


def window_begins_at_a_span(
    data: DataSettings, schedule_or_default: ScheduleSettings
) -> Iterator[Issue]:
    """Checks that a window begins at a date or at a number, as the spans do."""
    since, dated = schedule_or_default.window.since, span_kind(data).is_dated
    if since is not None and has_spans(data) and isinstance(since, date) is not dated:
        right = "dates, such as 2026-01-05" if dated else "numbers"
        yield Issue("schedule.window.since", f"found {since}; the spans at data.path are {right}")


def drift_needs_spans(data: DataSettings, drift: DriftSettings) -> Iterator[Issue]:
    """Checks that drift thresholds are given only for data with spans."""
    if drift.columns and not has_spans(data):
        yield Issue(
            "drift.columns",
            "data.path has no spans to compare; remove this key, or give a path with spans, "
            f"{_SPANS}",
        )


def retraining_by_drift_has_thresholds(drift: DriftSettings) -> Iterator[Issue]:
    """Checks that `on_drift: retrain` comes with thresholds."""
    if drift.on_drift is OnDrift.RETRAIN and not drift.columns:
        yield Issue(
            "drift.columns",
            "on_drift: retrain, but no column has a threshold; give one, such as {payment_type: "
            "{infinity_norm: 0.1}}",
        )


SCHEDULE_RULES = rules_of(__name__)


class OnSkew(StrEnum):
    """The reaction to requests that differ from the training data; the history logs them in any
    case.
    """

    WARN = "warn"
    RETRAIN = "retrain"
    """Notify, and make a run due."""
    NOTIFY = "notify"
    """Notify the recipients of the section `notify`."""


class SkewSettings(Settings):
    """The comparison of requests with the training data of the model in service."""

    requests: str | None = None
    """The folder that `serve --log-requests` writes to, or a glob of its files."""
    columns: dict[str, DriftThreshold] = {}
    """Thresholds by column: {fare: {jensen_shannon: 0.1}}."""
    on_skew: OnSkew = OnSkew.WARN
    """The reaction to a distance above the threshold that chance does not explain."""
    min_rows: int = Field(default=1000, ge=100)
    """The number of rows that a comparison needs."""

    @property
    def is_watched(self) -> bool:
        """Whether there are requests and thresholds to compare."""
        return self.requests is not None and bool(self.columns)


def skew_has_requests_and_thresholds(skew: SkewSettings) -> Iterator[Issue]:
    """Checks that skew thresholds come with logged requests, and requests with thresholds."""
    if skew.columns and skew.requests is None:
        yield Issue(
            "skew.requests",
            "this key is missing; give the folder that `serve --log-requests` writes to",
        )
    elif skew.requests is not None and is_remote(skew.requests):
        yield Issue("skew.requests", f"found {skew.requests!r}; expected a local folder, or glob")
    elif not skew.columns and skew.model_fields_set:
        yield Issue(
            "skew.columns",
            "no column has a threshold; give one, such as {fare: {jensen_shannon: 0.1}}",
        )


SKEW_RULES = (skew_has_requests_and_thresholds,)
