"""What has to hold between spans, `schedule:`, `drift:` and the rest of a config."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from components.example_gen.paths import is_remote
from components.example_gen.spans.placeholders import pattern_fault
from pipeline.config.issues import Issue
from pipeline.config.sections.notify import Occasion
from pipeline.config.sections.schedule import OnDrift
from pipeline.config.sections.skew import OnSkew
from pipeline.config.settings import PipelineConfig
from pipeline.config.span_patterns import has_spans, span_kind

TRIGGERS = (
    "give it cron: 0 3 * * * or on_new_data: true, or let drift do it with drift.on_drift: retrain "
    "and drift.columns, or skew with skew.on_skew: retrain"
)
_SPANS = "such as data/{SPAN}/*.csv or data/{YYYY}-{MM}-{DD}/*.csv"


def schedule_has_an_occasion(config: PipelineConfig) -> Iterator[Issue]:
    """A schedule that nothing sets off would never run; runs by hand have windows as well."""
    schedule = config.schedule
    by_hand = {"window", "missing_span", "settle", "warm_start", "keep"}
    if schedule is None or has_trigger(config) or schedule.model_fields_set <= by_hand:
        return
    yield Issue("schedule", f"nothing ever sets it off; {TRIGGERS}")


def has_trigger(config: PipelineConfig) -> bool:
    """Whether anything sets the schedule off."""
    schedule, drift = config.schedule_or_default, config.drift
    by_drift = drift.on_drift is OnDrift.RETRAIN and bool(drift.columns)
    by_skew = config.skew.on_skew is OnSkew.RETRAIN and config.skew.is_watched
    return schedule.cron is not None or schedule.on_new_data or by_drift or by_skew


def spans_are_named_in_full(config: PipelineConfig) -> Iterator[Issue]:
    """An hour belongs to a day, a version to a span."""
    keys = {"data.path": config.data.path}
    keys |= {f"data.splits.{name}": str(glob) for name, glob in config.data.splits.items()}
    for key, pattern in keys.items():
        if fault := pattern_fault(pattern):
            yield Issue(key, f"{pattern}: {fault}")


def windows_need_spans(config: PipelineConfig) -> Iterator[Issue]:
    """Without spans there is one set of data, and all of it is trained on."""
    if config.schedule is None or has_spans(config.data):
        return
    for key in ("window", "missing_span"):
        if key in config.schedule.model_fields_set:
            yield Issue(
                f"schedule.{key}",
                f"data.path has no spans; leave this out, or give it some, {_SPANS}",
            )


def window_begins_at_a_span(config: PipelineConfig) -> Iterator[Issue]:
    """Spans are dates or numbers, and so is where a window begins."""
    since, dated = config.schedule_or_default.window.since, span_kind(config.data).is_dated
    if since is not None and has_spans(config.data) and isinstance(since, date) is not dated:
        right = "dates, such as 2026-01-05" if dated else "numbers"
        yield Issue("schedule.window.since", f"found {since}; the spans at data.path are {right}")


def drift_needs_spans(config: PipelineConfig) -> Iterator[Issue]:
    """Drift is measured between the newest span and the one trained on last."""
    if config.drift.columns and not has_spans(config.data):
        yield Issue(
            "drift.columns",
            f"data.path has no spans to compare; leave this out, or give it some, {_SPANS}",
        )


def retraining_by_drift_has_thresholds(config: PipelineConfig) -> Iterator[Issue]:
    """Drift is what passes a threshold."""
    if config.drift.on_drift is OnDrift.RETRAIN and not config.drift.columns:
        yield Issue(
            "drift.columns",
            "on_drift: retrain, but no column has a threshold; one is "
            "{payment_type: {infinity_norm: 0.1}}",
        )


def skew_has_requests_and_thresholds(config: PipelineConfig) -> Iterator[Issue]:
    """Skew is what passes a threshold, of requests that are written down."""
    skew = config.skew
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


def stale_alarms_reach_somebody(config: PipelineConfig) -> Iterator[Issue]:
    """The looks of a schedule raise the alarm, and it is sent as an occasion."""
    notify = config.notify
    if notify.stale_after is None:
        return
    if not has_trigger(config):
        yield Issue("notify.stale_after", "nobody looks without a `schedule:` that runs by itself")
    if Occasion.STALE not in notify.occasions:
        yield Issue("notify.stale_after", "it is told as `stale`, which notify.occasions lacks")


SCHEDULE_RULES = (
    spans_are_named_in_full,
    schedule_has_an_occasion,
    windows_need_spans,
    window_begins_at_a_span,
    drift_needs_spans,
    retraining_by_drift_has_thresholds,
    skew_has_requests_and_thresholds,
    stale_alarms_reach_somebody,
)
