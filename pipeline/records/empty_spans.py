"""Tells of spans that hold no row, each once."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.config.sections.notify import NotifySettings, Occasion
from pipeline.data.spans import Span
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.notify import notify
from pipeline.records.span_records import SpanRecords


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
