"""What the event log knows of data: of spans, and of requests that were compared with it."""

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
    """The last event of each kind of every span, as of now."""

    def __init__(self, event_log: EventLog) -> None:
        """Reads the event log once."""
        self._event_log = event_log
        self._last: dict[EventKind, dict[int, LoggedEvent]] = {kind: {} for kind in _KINDS}
        for event in event_log.events(*_KINDS):
            self._last[event.kind][event.details["span"]] = event

    def reading(self, number: int) -> LoggedEvent | None:
        """Returns how a span was read last."""
        return self._last[EventKind.INGESTED].get(number)

    def read(self, span: Span) -> LoggedEvent | None:
        """Returns how a span was read, if its files are still those and it was not refused
        since.
        """
        event = self._of(EventKind.INGESTED, span)
        refused = self._last[EventKind.UNUSABLE_SPAN].get(span.number)
        return None if event and refused and refused.id > event.id else event

    def refusal(self, span: Span) -> LoggedEvent | None:
        """Why a span could not be used, unless its files are others now or it was accepted since.

        What was read again since could be used.
        """
        event = self._of(EventKind.UNUSABLE_SPAN, span)
        overruled = (self.acceptance(span), self.reading(span.number))
        return None if event and any(e and e.id > event.id for e in overruled) else event

    def drift(self, span: Span) -> LoggedEvent | None:
        """Returns how the span as it is now has drifted."""
        return self._of(EventKind.DRIFT, span)

    def acceptance(self, span: Span) -> LoggedEvent | None:
        """Who accepted the span as it is now, though it had drifted.

        The same content in other files is accepted as well.
        """
        event = self._last[EventKind.SPAN_ACCEPTED].get(span.number)
        if event is None or event.details["signature"] == span.signature:
            return event
        return event if event.details["digest"] == span.digest() else None

    def is_told_empty(self, span: Span) -> bool:
        """Returns whether it is known already that the span as it is now holds no row."""
        return self._of(EventKind.EMPTY_SPAN, span) is not None

    def compared_with(self, number: int, on_drift: OnDrift) -> int | None:
        """Returns the span that a span's drift is measured from; None if there is none yet.

        It is the last one before it that passed: was read and had not drifted, or was accepted.
        Where drift is answered by a run, it is the last one that was trained on.
        """
        if on_drift is OnDrift.RETRAIN:
            return self._trained_before(number)
        older = (n for n in self._last[EventKind.INGESTED] if n < number and self._passed(n))
        return max(older, default=None)

    def _of(self, kind: EventKind, span: Span) -> LoggedEvent | None:
        event = self._last[kind].get(span.number)
        # Events that an earlier version wrote may name no signature: they are of the span as it is.
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
        # Of earlier nights alone: a rerun of this one has to find the same.
        newest = (event.details["window"][-1] for event in trainings(self._event_log))
        return max((span for span in newest if span < number), default=None)


def trainings(event_log: EventLog, newest: int | None = None) -> list[LoggedEvent]:
    """Returns the good ends of runs that trained on a window, or found it trained on already.

    Args:
      event_log: of the pipeline.
      newest: how many ends of runs are looked at, those of validations included; all by default.

    Returns:
      Their events, oldest first.
    """
    ends = event_log.events(EventKind.FINISHED, newest=newest)
    return [
        event for event in ends if event.details["status"] not in (Status.VALIDATED, Status.TUNED)
    ]


def tell_empty_spans(
    settings: NotifySettings,
    pipeline: str,
    spans: Iterable[Span],
    event_log: EventLog,
    run: str | None = None,
) -> bool:
    """Records spans without a row, and notifies of them, but for those that are known.

    Args:
      settings: who is told of what.
      pipeline: its name.
      spans: that were found to be empty.
      event_log: of the pipeline.
      run: the id of the run that found them, if one did.

    Returns:
      Whether there was anything to tell.
    """
    found = list(spans)
    if not found:
        return False
    records, is_told = SpanRecords(event_log), False
    for span in found:
        if records.is_told_empty(span):
            continue
        message = f"span {span} holds no row; it waits for some, and the others go on without"
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

    Empty until they have `skew.min_rows` rows together, or where nothing is to be compared.
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
    """Records what a comparison came to, and tells of it: of what lasts, once.

    Args:
      config: of the pipeline.
      event_log: of the pipeline.
      files: that were compared.
      version: that serves, with whose training data.
      rows: that were compared.
      skewed: by column, how far it is from the training data.

    Returns:
      What it came to, in a sentence.
    """
    before = event_log.last(EventKind.SKEW_CHECKED)
    is_same = before is not None and before.details["version"] == version
    known = set(before.details["columns"]) if before and is_same else set()
    new = {column: text for column, text in skewed.items() if column not in known}
    window = f"requests of {show_files(files)}, {counted(rows, 'row')}"
    said = f"{window}: {_outcome(skewed, new, known)}"
    newest = files[-1]
    event_log.record(
        EventKind.SKEW_CHECKED,
        said,
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
    return said


def _outcome(skewed: Mapping[str, str], new: Mapping[str, str], known: set[str]) -> str:
    lasting = [f"{name} is still skewed" for name in skewed if name not in new]
    over = [f"{name} is again like the training data" for name in sorted(known - skewed.keys())]
    found = [f"{name}: {text}" for name, text in new.items()]
    return "; ".join([*found, *lasting, *over]) or "like the training data"
