"""The state of each span: read, trained on, left out or waited for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pipeline.config.sections.data import has_spans, span_kind
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import are_empty, locate_data
from pipeline.data.spans import Span, list_spans, unsettled
from pipeline.layout import Layout
from pipeline.records.data_records import SpanRecords, trainings
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.schedule.data_changes import take_snapshot
from trainer_module.errors import ConfigError
from trainer_module.typed_words import typed_command


class SpanState(StrEnum):
    """The state of a span in the list."""

    UNSTABLE = "unstable"
    """The span is still being written, or its files are dated in the future."""
    EMPTY = "empty"
    LEFT_OUT = "left out"
    ACCEPTED = "accepted"
    """A user accepted the span, and no run has read it since."""
    TRAINED = "trained on"
    READ = "read"
    LATE = "late"
    """The span arrived after a run had trained on a later span, and is before the next window."""
    BEFORE = "before the window"
    NEW = "not read yet"


@dataclass(frozen=True)
class ListedSpan:
    """A span with its state."""

    span: Span
    state: SpanState
    reason: str = ""
    """The reason for the state, or an empty string if the state needs no reason."""
    rows: int | None = None
    """The number of rows in all splits, or None if the span has not been read."""
    read: datetime | None = None
    """The time of the last reading."""


def list_states(
    config: PipelineConfig, layout: Layout, event_log: EventLog, now: datetime
) -> list[ListedSpan]:
    """Returns the states of all spans at the data path, oldest first.

    Raises:
      ConfigError: the data does not come in spans.
    """
    if not has_spans(config.data):
        raise ConfigError(
            f"data.path: {config.data.path!r} has no {{SPAN}} and no {{YYYY}}-{{MM}}-{{DD}}: the "
            "data does not come in spans"
        )
    records, snapshot = SpanRecords(event_log), take_snapshot(config, layout, now)
    # The list is complete even if there is no valid window.
    first = snapshot.window.spans[0].number if snapshot.window else None
    settings, training_runs = config.schedule_or_default, _Trainings(event_log)
    listed = []
    for span in snapshot.spans:
        if reason := unsettled(span, settings, now):
            listed.append(
                ListedSpan(span, SpanState.UNSTABLE, reason.removeprefix(f"span {span} "))
            )
        elif are_empty(span.files, config.data):
            listed.append(ListedSpan(span, SpanState.EMPTY, "the span has no rows yet"))
        else:
            listed.append(_state_of(span, records, training_runs, first))
    return listed


def accept_span(
    config: PipelineConfig, layout: Layout, event_log: EventLog, name: str, reason: str
) -> str:
    """Accepts a span that drifted: the next run uses it, and compares later spans with it.

    Args:
      name: the date, hour or number of the span.

    Returns:
      The consequences in a sentence.

    Raises:
      ConfigError: there is no such span, or it has not drifted.
    """
    span, records = _find(config, layout, name), SpanRecords(event_log)
    if (earlier := records.acceptance(span)) is not None:
        return f"span {span} was accepted already: {earlier.details['reason']}"
    refusal = records.refusal(span)
    if refusal is not None and not refusal.details.get("has_drifted"):
        raise ConfigError(
            f"{refusal.message} This is not drift: deliver the span again, or change the schema "
            f"by `{typed_command('schema accept')}`"
        )
    if refusal is None and records.drift(span) is None:
        raise ConfigError(
            f"span {span}: no run has found drift in this span, so there is nothing to accept"
        )
    event_log.record(
        EventKind.SPAN_ACCEPTED,
        f"span {span}: {reason}",
        span=span.number,
        signature=span.signature,
        digest=span.digest(),
        reason=reason,
    )
    training = ""
    if refusal is not None:
        training = "the next run whose window contains the span trains on the span, and "
    return f"span {span} is accepted: {training}later spans are compared with this span"


def _find(config: PipelineConfig, layout: Layout, name: str) -> Span:
    kind = span_kind(config.data)
    try:
        number = kind.parse(name)
    except ValueError:
        raise ConfigError(f"{name}: each span at data.path is {kind.value}") from None
    spans = list_spans(config.data, locate_data(config.data, layout))
    for span in spans:
        if span.number == number:
            return span
    existing = f"there are {spans[0].name} to {spans[-1].name}" if spans else "there are no spans"
    raise ConfigError(f"{name}: there is no such span at data.path; {existing}")


def _state_of(
    span: Span, records: SpanRecords, training_runs: _Trainings, first: int | None
) -> ListedSpan:
    """Returns the state of a span that is complete and has rows."""
    accepted, refusal, read = (
        records.acceptance(span),
        records.refusal(span),
        records.current_reading(span),
    )
    reason = f"accepted: {accepted.details['reason']}" if accepted else ""
    if refusal is not None:
        return ListedSpan(span, SpanState.LEFT_OUT, refusal.message.removeprefix(f"span {span}: "))
    if read is not None:
        state = SpanState.TRAINED if training_runs.include(span.number, read) else SpanState.READ
        drift = records.drift(span)
        reason = reason or (f"has drifted: {drift.message}" if drift else "")
        return ListedSpan(span, state, reason, sum(read.details["examples"].values()), read.at)
    if accepted is not None:
        return ListedSpan(span, SpanState.ACCEPTED, accepted.details["reason"])
    if first is None or span.number >= first:
        return ListedSpan(span, SpanState.NEW)
    is_late = training_runs.since is not None and span.modified > training_runs.since.at.timestamp()
    return ListedSpan(span, SpanState.LATE if is_late else SpanState.BEFORE)


class _Trainings:
    """The completed trainings in the event log."""

    def __init__(self, event_log: EventLog) -> None:
        self._runs = trainings(event_log)
        last = self._runs[-1] if self._runs else None
        self.since = event_log.last(EventKind.DUE) or last
        """The time of the last decision to run, or of the last training."""

    def include(self, number: int, read: LoggedEvent) -> bool:
        """Returns whether a run trained on a span after the given reading."""
        return any(run.id > read.id and number in run.details["window"] for run in self._runs)
