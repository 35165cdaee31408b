"""Reads and records the events about data: states of spans, and comparisons of requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.config.sections.notify import NotifySettings, Occasion
from pipeline.config.sections.schedule import OnDrift, OnSkew
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import File, count_rows, list_requests, show_files
from pipeline.data.spans import Span
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import notify
from pipeline.records.summary import Status
from trainer_module.errors import counted

_KINDS = (
    EventKind.INGESTED,
    EventKind.UNUSABLE_SPAN,
    EventKind.DRIFT,
    EventKind.EMPTY_SPAN,
    EventKind.SPAN_ACCEPTED,
)


class SpanRecords:
    """The last event of each kind about each span."""

    def __init__(self, event_log: EventLog) -> None:
        """Reads the event log; later events are not seen."""
        self._event_log = event_log
        self._last: dict[EventKind, dict[int, LoggedEvent]] = {kind: {} for kind in _KINDS}
        for event in event_log.events(*_KINDS):
            self._last[event.kind][event.details["span"]] = event

    def last_reading(self, number: int) -> LoggedEvent | None:
        """Returns the event of the last run that read a span, or None if no run has read it."""
        return self._last[EventKind.INGESTED].get(number)

    def current_reading(self, span: Span) -> LoggedEvent | None:
        """Returns the event of the last run that read a span.

        None if the files have changed since, or the span was refused since.
        """
        event = self._latest(EventKind.INGESTED, span)
        refused = self._last[EventKind.UNUSABLE_SPAN].get(span.number)
        return None if event and refused and refused.id > event.id else event

    def refusal(self, span: Span) -> LoggedEvent | None:
        """Returns the event of a span's last refusal.

        None if the files have changed since, or the span was accepted or read since.
        """
        event = self._latest(EventKind.UNUSABLE_SPAN, span)
        successes = (self.acceptance(span), self.last_reading(span.number))
        return None if event and any(e and e.id > event.id for e in successes) else event

    def drift(self, span: Span) -> LoggedEvent | None:
        """Returns the drift event of the span with its current files."""
        return self._latest(EventKind.DRIFT, span)

    def acceptance(self, span: Span) -> LoggedEvent | None:
        """Returns the event of a user's acceptance of the span despite drift.

        None if the content of the files has changed since.
        """
        event = self._last[EventKind.SPAN_ACCEPTED].get(span.number)
        if event is None or event.details["signature"] == span.signature:
            return event
        return event if event.details["digest"] == span.digest() else None

    def is_recorded_empty(self, span: Span) -> bool:
        """Returns whether the event log has an event that the current files have no rows."""
        return self._latest(EventKind.EMPTY_SPAN, span) is not None

    def compared_with(self, number: int, on_drift: OnDrift) -> int | None:
        """Returns the number of the span with which a span is compared for drift.

        The result is the last earlier span that was read and had not drifted, or was accepted. If
        drift triggers runs, the result is the last earlier span that a run trained on. None if
        there is no such span.
        """
        if on_drift is OnDrift.RETRAIN:
            return self._trained_before(number)
        older = (n for n in self._last[EventKind.INGESTED] if n < number and self._passed(n))
        return max(older, default=None)

    def _latest(self, kind: EventKind, span: Span) -> LoggedEvent | None:
        event = self._last[kind].get(span.number)
        # Events of earlier versions of Scopeline may lack a signature, and count as current.
        is_same = event and event.details.get("signature", span.signature) == span.signature
        return event if is_same else None

    def _passed(self, number: int) -> bool:
        read, refused, drifted, accepted = (
            self._last[kind].get(number)
            for kind in (
                EventKind.INGESTED,
                EventKind.UNUSABLE_SPAN,
                EventKind.DRIFT,
                EventKind.SPAN_ACCEPTED,
            )
        )
        if read is None or (refused is not None and refused.id > read.id):
            return False
        signature = read.details["signature"]
        if drifted is None or drifted.details.get("signature", signature) != signature:
            return True
        return accepted is not None and accepted.details["signature"] == signature

    def _trained_before(self, number: int) -> int | None:
        # Only earlier spans count, so that a rerun on this span has the same result.
        newest = (event.details["window"][-1] for event in trainings(self._event_log))
        return max((span for span in newest if span < number), default=None)


def trainings(event_log: EventLog, newest: int | None = None) -> list[LoggedEvent]:
    """Returns the final events of successful runs with a model, trained or from the cache.

    Args:
      newest: the number of newest final events to read, of all runs; default: all.

    Returns:
      The events, oldest first.
    """
    ends = event_log.events(EventKind.FINISHED, newest=newest)
    return [
        event for event in ends if event.details["status"] not in (Status.VALIDATED, Status.TUNED)
    ]


def report_empty_spans(
    settings: NotifySettings,
    pipeline: str,
    spans: Iterable[Span],
    event_log: EventLog,
    run: str | None = None,
) -> bool:
    """Records spans without rows and sends notifications, once for each state of a span.

    Args:
      settings: the receivers and occasions.
      spans: the empty spans.
      run: the id of the run that has the spans in its window, or None for a check without a run.

    Returns:
      Whether one of the spans was not recorded before.
    """
    empty = list(spans)
    if not empty:
        return False
    records, has_new = SpanRecords(event_log), False
    for span in empty:
        if records.is_recorded_empty(span):
            continue
        message = f"span {span} has no rows; runs continue without it until rows arrive"
        event_log.record(
            EventKind.EMPTY_SPAN, message, run=run, span=span.number, signature=span.signature
        )
        notify(
            settings,
            pipeline,
            Occasion.SKIPPED,
            message,
            {"span": span.name},
            event_log,
            run=run,
        )
        has_new = True
    return has_new


def new_requests(config: PipelineConfig, event_log: EventLog) -> list[File]:
    """Returns the files of requests that have not been compared yet, oldest first.

    The result is empty if the files have fewer than `skew.min_rows` rows in total, if the config
    has no comparison, or if no model was pushed.
    """
    skew = config.skew
    if not skew.is_watched or skew.requests is None or event_log.last(EventKind.PUSHED) is None:
        return []
    last = event_log.last(EventKind.SKEW_CHECKED)
    through = tuple(last.details["through"]) if last else (0.0, "")
    files = [f for f in list_requests(skew.requests) if (f.modified, f.path) > through]
    rows = count_rows(files)
    complete = [file for file in files if file.path in rows]
    return complete if sum(rows.values()) >= skew.min_rows else []


def record_skew(
    config: PipelineConfig,
    event_log: EventLog,
    files: Sequence[File],
    version: int,
    rows: int,
    skewed: Mapping[str, str],
) -> str:
    """Records the result of a comparison, and sends a notification about newly skewed columns.

    Args:
      files: the compared files of requests.
      version: the version in service; the requests were compared with its training data.
      rows: the number of compared rows.
      skewed: the skewed columns, each with a description of its distance.

    Returns:
      The result as a sentence.
    """
    last = event_log.last(EventKind.SKEW_CHECKED)
    is_same_version = last is not None and last.details["version"] == version
    previous = set(last.details["columns"]) if last and is_same_version else set()
    new = {column: text for column, text in skewed.items() if column not in previous}
    window = f"requests of {show_files(files)}, {counted(rows, 'row')}"
    sentence = f"{window}: {_outcome(skewed, new, previous)}"
    newest = files[-1]
    event_log.record(
        EventKind.SKEW_CHECKED,
        sentence,
        through=[newest.modified, newest.path],
        version=version,
        rows=rows,
        columns=sorted(skewed),
    )
    if new:
        message = f"{window}: {'; '.join(f'{name}: {text}' for name, text in new.items())}"
        details: dict[str, Any] = {"columns": sorted(new), "version": version, "rows": rows}
        event_log.record(EventKind.SKEW, message, **details)
        if config.skew.on_skew is not OnSkew.WARN:
            notify(config.notify, config.name, Occasion.SKEW, message, details, event_log)
    return sentence


def _outcome(skewed: Mapping[str, str], new: Mapping[str, str], previous: set[str]) -> str:
    """Returns the new, the continuing and the ended differences as a sentence."""
    continuing = [f"{name} is still skewed" for name in skewed if name not in new]
    ended = [f"{name} is no longer skewed" for name in sorted(previous - skewed.keys())]
    started = [f"{name}: {text}" for name, text in new.items()]
    return "; ".join([*started, *continuing, *ended]) or "like the training data"
