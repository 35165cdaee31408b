"""`schedule`, `drift` and `skew`: when to retrain, on which spans, what to keep, what has moved."""

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
    "right are five: minute, hour, day of month, month and day of week, such as `0 3 * * *` for "
    "3 o'clock every night"
)


class MissingSpan(StrEnum):
    """What a gap in the window does, or a span that holds no example."""

    FAIL = "fail"
    SKIP = "skip"


class WindowSettings(Settings):
    """Which spans to train on, counted back from the newest; one of the three."""

    last: PositiveInt | None = None
    """So many consecutive spans: days where the path has a date, hours with `{HH}`."""
    all: bool = False
    """Every span there is."""
    since: date | NonNegativeInt | None = None
    """From this span on: a date where the path has one, for hours its first; else a number."""

    @model_validator(mode="after")
    def _one_of_three(self) -> WindowSettings:
        given = [self.last is not None, self.all, self.since is not None]
        if sum(given) != 1:
            raise ValueError("give one of {last: 7}, {all: true} and {since: 2026-01-01}")
        return self


class RetrySettings(Settings):
    """What happens after a run that failed; data or a config that is unusable is not retried."""

    attempts: PositiveInt = 3
    """Runs in all, the first included."""
    backoff: Duration = timedelta(minutes=5)
    """The wait before the second; it doubles each time."""


ALL: Literal["all"] = "all"
"""What `keep` has where nothing is deleted."""


class KeepSettings(Settings):
    """What is not deleted; the model in service and what it is compared with always stay."""

    versions: PositiveInt | Literal["all"] = 10
    """The newest pushed versions; `all` deletes none."""
    runs: PositiveInt | Literal["all"] = 30
    """The newest runs, with their artifacts and what the metadata has of them; `all` deletes
    none."""


class ScheduleSettings(Settings):
    """When to retrain, and on what."""

    cron: str | None = None
    """Five fields: minute, hour, day of month, month, day of week."""
    on_new_data: bool = False
    """Retrain when a span or a version of one is new at `data.path`, or its files have changed."""
    poll: SomeTime = timedelta(minutes=5)
    """How often to look for new data."""
    settle: Duration = timedelta(minutes=1)
    """Files changed more recently than this are still being written."""
    timezone: str = "UTC"
    """Of `cron`: a name such as Europe/Paris."""
    window: WindowSettings = WindowSettings(last=1)
    """Spans to train on; where this is left out, a note says how many are not."""
    missing_span: MissingSpan = MissingSpan.FAIL
    """What a gap in the window does."""
    warm_start: bool = False
    """Begin with the weights of the latest blessed model."""
    retry: RetrySettings = RetrySettings()
    timeout: SomeTime = timedelta(hours=24)
    """A run that takes longer is stopped, and has failed."""
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
            hint = f"did you mean `{near[0]}`?" if near else "one is Europe/Paris"
            raise ValueError(f"there is no such time zone; {hint}")
        return name

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of `cron`."""
        return ZoneInfo(self.timezone)


class OnDrift(StrEnum):
    """What drift between a span and the last one before it that passed does."""

    RETRAIN = "retrain"
    """A run is due, also where neither the clock nor `on_new_data` asks for one."""
    WARN = "warn"
    FAIL = "fail"
    """The span is refused, as one that breaks the schema, until somebody accepts it."""


class DriftThreshold(Settings):
    """How far a column's distribution may move; TFDV measures it."""

    infinity_norm: float | None = Field(default=None, gt=0, le=1)
    """Categorical: the largest change of any value's share."""
    jensen_shannon: float | None = Field(default=None, gt=0, le=1)
    """Numeric or categorical: the Jensen-Shannon divergence."""

    @model_validator(mode="after")
    def _one_of_two(self) -> DriftThreshold:
        if (self.infinity_norm is None) == (self.jensen_shannon is None):
            raise ValueError("give one of infinity_norm and jensen_shannon")
        return self


class DriftSettings(Settings):
    """Whether a span still looks like the last one before it that passed."""

    columns: dict[str, DriftThreshold] = {}
    """Thresholds by column: {payment_type: {infinity_norm: 0.1}}."""
    on_drift: OnDrift = OnDrift.WARN
    """What happens when a threshold is passed; fail leaves the span out until it is accepted."""


TRIGGERS = (
    "give it cron: 0 3 * * * or on_new_data: true, or let drift do it with drift.on_drift: retrain "
    "and drift.columns, or skew with skew.on_skew: retrain"
)
_SPANS = "such as data/{SPAN}/*.csv or data/{YYYY}-{MM}-{DD}/*.csv"


def spans_are_named_in_full(data: DataSettings) -> Iterator[Issue]:
    """An hour belongs to a day, a version to a span."""
    keys = {"data.path": data.path}
    keys |= {f"data.splits.{name}": str(glob) for name, glob in data.splits.items()}
    for key, pattern in keys.items():
        if fault := pattern_fault(pattern):
            yield Issue(key, f"{pattern}: {fault}")


def schedule_has_an_occasion(
    schedule: ScheduleSettings | None, has_trigger: bool
) -> Iterator[Issue]:
    """A schedule that nothing sets off would never run; runs by hand have windows as well."""
    by_hand = {"window", "missing_span", "settle", "warm_start", "keep"}
    if schedule is None or has_trigger or schedule.model_fields_set <= by_hand:
        return
    yield Issue("schedule", f"nothing ever sets it off; {TRIGGERS}")


def windows_need_spans(data: DataSettings, schedule: ScheduleSettings | None) -> Iterator[Issue]:
    """Without spans there is one set of data, and all of it is trained on."""
    if schedule is None or has_spans(data):
        return
    for key in ("window", "missing_span"):
        if key in schedule.model_fields_set:
            yield Issue(
                f"schedule.{key}",
                f"data.path has no spans; leave this out, or give it some, {_SPANS}",
            )


def window_begins_at_a_span(
    data: DataSettings, schedule_or_default: ScheduleSettings
) -> Iterator[Issue]:
    """Spans are dates or numbers, and so is where a window begins."""
    since, dated = schedule_or_default.window.since, span_kind(data).is_dated
    if since is not None and has_spans(data) and isinstance(since, date) is not dated:
        right = "dates, such as 2026-01-05" if dated else "numbers"
        yield Issue("schedule.window.since", f"found {since}; the spans at data.path are {right}")


def drift_needs_spans(data: DataSettings, drift: DriftSettings) -> Iterator[Issue]:
    """Drift is measured between the newest span and the one trained on last."""
    if drift.columns and not has_spans(data):
        yield Issue(
            "drift.columns",
            f"data.path has no spans to compare; leave this out, or give it some, {_SPANS}",
        )


def retraining_by_drift_has_thresholds(drift: DriftSettings) -> Iterator[Issue]:
    """Drift is what passes a threshold."""
    if drift.on_drift is OnDrift.RETRAIN and not drift.columns:
        yield Issue(
            "drift.columns",
            "on_drift: retrain, but no column has a threshold; one is "
            "{payment_type: {infinity_norm: 0.1}}",
        )


SCHEDULE_RULES = rules_of(__name__)


class OnSkew(StrEnum):
    """What requests do that are unlike the training data; the history has it in any case."""

    WARN = "warn"
    RETRAIN = "retrain"
    """Tell, and make a run due."""
    NOTIFY = "notify"
    """Tell whom `notify` names."""


class SkewSettings(Settings):
    """Whether requests still look like what the model in service was trained on."""

    requests: str | None = None
    """The folder that `serve --log-requests` writes to, or a glob of its files."""
    columns: dict[str, DriftThreshold] = {}
    """Thresholds by column: {fare: {jensen_shannon: 0.1}}."""
    on_skew: OnSkew = OnSkew.WARN
    """What happens when a threshold is passed, and by more than by chance."""
    min_rows: int = Field(default=1000, ge=100)
    """Rows that are waited for before they are compared."""

    @property
    def is_watched(self) -> bool:
        """Whether there is anything to compare."""
        return self.requests is not None and bool(self.columns)


def skew_has_requests_and_thresholds(skew: SkewSettings) -> Iterator[Issue]:
    """Skew is what passes a threshold, of requests that are written down."""
    if skew.columns and skew.requests is None:
        yield Issue(
            "skew.requests",
            "this key is missing; give the folder that `serve --log-requests` writes to",
        )
    elif skew.requests is not None and is_remote(skew.requests):
        yield Issue("skew.requests", f"found {skew.requests!r}; right is a local folder, or glob")
    elif not skew.columns and skew.model_fields_set:
        yield Issue(
            "skew.columns", "no column has a threshold; one is {fare: {jensen_shannon: 0.1}}"
        )


SKEW_RULES = (skew_has_requests_and_thresholds,)
