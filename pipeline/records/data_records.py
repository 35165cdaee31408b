"""The events about data: spans that were read, refused or accepted, and compared requests."""

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
    """The last event of each kind for every span, at the time of construction."""

    def __init__(self, event_log: EventLog) -> None:
        """Reads the event log once."""
        self._event_log = event_log
        self._last: dict[EventKind, dict[int, LoggedEvent]] = {kind: {} for kind in _KINDS}
        for event in event_log.events(*_KINDS):
            self._last[event.kind][event.details["span"]] = event

    def reading(self, number: int) -> LoggedEvent | None:
        """Returns the event of a span's last reading."""
        return self._last[EventKind.INGESTED].get(number)

    def read(self, span: Span) -> LoggedEvent | None:
        """Returns the event of a span's reading, if its files are unchanged and it was not refused
        since.
        """
        event = self._of(EventKind.INGESTED, span)
        refused = self._last[EventKind.UNUSABLE_SPAN].get(span.number)
        return None if event and refused and refused.id > event.id else event

    def refusal(self, span: Span) -> LoggedEvent | None:
        """Returns the event of a span's refusal; None if its files have changed, or it was accepted
        or read since.
        """
        event = self._of(EventKind.UNUSABLE_SPAN, span)
        overruled = (self.acceptance(span), self.reading(span.number))
        return None if event and any(e and e.id > event.id for e in overruled) else event

    def drift(self, span: Span) -> LoggedEvent | None:
        """Returns the drift event of the span with its current files."""
        return self._of(EventKind.DRIFT, span)

    def acceptance(self, span: Span) -> LoggedEvent | None:
        """Returns the event of accepting the span with its current files despite drift.

        Equal content in other files counts as accepted too.
        """
        event = self._last[EventKind.SPAN_ACCEPTED].get(span.number)
        if event is None or event.details["signature"] == span.signature:
            return event
        return event if event.details["digest"] == span.digest() else None

    def is_recorded_empty(self, span: Span) -> bool:
        """Returns whether the event log has the span with its current files as empty."""
        return self._of(EventKind.EMPTY_SPAN, span) is not None

    def compared_with(self, number: int, on_drift: OnDrift) -> int | None:
        """Returns the span with which a span is compared for drift; None if there is none yet.

        It is the last span before it that passed: it was read and had not drifted, or was accepted.
        If drift triggers runs, it is the last span that a run trained on.
        """
        if on_drift is OnDrift.RETRAIN:
            return self._trained_before(number)
        older = (n for n in self._last[EventKind.INGESTED] if n < number and self._passed(n))
        return max(older, default=None)

    def _of(self, kind: EventKind, span: Span) -> LoggedEvent | None:
        event = self._last[kind].get(span.number)
        # Events of earlier versions may have no signature: they count for the current files.
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
        # Only earlier spans: a rerun of this span has to find the same one.
        newest = (event.details["window"][-1] for event in trainings(self._event_log))
        return max((span for span in newest if span < number), default=None)


def trainings(event_log: EventLog, newest: int | None = None) -> list[LoggedEvent]:
    """Returns the ends of successful runs that trained on a window, or used a cached training.

    Args:
      event_log: the event log of the pipeline.
      newest: the number of newest ends of runs to read, validations included; default: all.

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
    """Records spans without rows, and sends notifications, once for each span.

    Args:
      settings: the receivers and occasions.
      pipeline: the name of the pipeline.
      spans: the empty spans.
      event_log: the event log of the pipeline.
      run: the id of the run that found them, if any.

    Returns:
      Whether any of the spans was not recorded before.
    """
    found = list(spans)
    if not found:
        return False
    records, is_told = SpanRecords(event_log), False
    for span in found:
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
        is_told = True
    return is_told


def new_requests(config: PipelineConfig, event_log: EventLog) -> list[File]:
    """Returns the files of requests that have not been compared yet, oldest first.

    Empty until they have `skew.min_rows` rows in total, or if there is nothing to compare with.
    """
    skew = config.skew
    if not skew.is_watched or skew.requests is None or event_log.last(EventKind.PUSHED) is None:
        return []
    last = event_log.last(EventKind.SKEW_CHECKED)
    through = tuple(last.details["through"]) if last else (0.0, "")
    files = [f for f in list_requests(skew.requests) if (f.modified, f.path) > through]
    rows = count_rows(files)
    whole = [file for file in files if file.path in rows]
    return whole if sum(rows.values()) >= skew.min_rows else []


def record_skew(
    config: PipelineConfig,
    event_log: EventLog,
    files: Sequence[File],
    version: int,
    rows: int,
    skewed: Mapping[str, str],
) -> str:
    """Records the result of a comparison, and notifies of columns that are newly skewed.

    Args:
      config: the config.
      event_log: the event log of the pipeline.
      files: the compared files.
      version: the version in service, with whose training data they were compared.
      rows: the number of compared rows.
      skewed: descriptions of the distances, by skewed column.

    Returns:
      The result in a sentence.
    """
    before = event_log.last(EventKind.SKEW_CHECKED)
    is_same = before is not None and before.details["version"] == version
    known = set(before.details["columns"]) if before and is_same else set()
    new = {column: text for column, text in skewed.items() if column not in known}
    window = f"requests of {show_files(files)}, {counted(rows, 'row')}"
    sentence = f"{window}: {_outcome(skewed, new, known)}"
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


def _outcome(skewed: Mapping[str, str], new: Mapping[str, str], known: set[str]) -> str:
    lasting = [f"{name} is still skewed" for name in skewed if name not in new]
    over = [f"{name} is again like the training data" for name in sorted(known - skewed.keys())]
    found = [f"{name}: {text}" for name, text in new.items()]
    return "; ".join([*found, *lasting, *over]) or "like the training data"
