"""What a run would train on now, and how that differs from what the last run trained on."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.config.sections.data import has_spans
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import locate_data
from pipeline.data.spans import (
    Span,
    Window,
    choose_window,
    is_being_written,
    is_dated_ahead,
    list_spans,
    unsettled,
    whole_data,
)
from pipeline.layout import Layout
from trainer_module.errors import DataError

MAX_SPANS_SHOWN = 5
"""A message names at most so many spans."""


@dataclass(frozen=True)
class DataSnapshot:
    """The data as it is now."""

    spans: tuple[Span, ...]
    """Every span there is; data without spans counts as one."""
    window: Window | None
    """What a run would train on."""
    problem: str | None = None
    """Why there is no window."""
    is_being_written: bool = False
    """Whether files have changed so recently that more may follow."""
    left_out: tuple[str, ...] = ()
    """Why spans wait until somebody does something about them, a sentence each."""

    @property
    def signatures(self) -> dict[str, str]:
        """The signatures of the window's spans, by the span's number."""
        spans = self.window.spans if self.window else ()
        return {str(span.number): span.signature for span in spans}


@dataclass(frozen=True)
class DataChanges:
    """How the window differs from what was trained on."""

    spans: tuple[Span, ...] = ()
    """Spans of the window that are new, or have other content."""
    notes: tuple[str, ...] = ()
    """Data that has come but is no reason to train, a sentence each."""

    def __str__(self) -> str:
        """Such as `new or changed: 2026-01-05`."""
        names = ", ".join(str(span) for span in self.spans[-MAX_SPANS_SHOWN:])
        more = len(self.spans) - MAX_SPANS_SHOWN
        return f"new or changed: {names}" + (f" and {more} older ones" if more > 0 else "")


def take_snapshot(config: PipelineConfig, layout: Layout, now: datetime) -> DataSnapshot:
    """Finds the data that is there, and the window that a run would train on.

    Data that cannot be used raises nothing: the snapshot says what is wrong with it.
    """
    settings, in_spans = config.schedule_or_default, has_spans(config.data)
    spans: list[Span] = []
    window, problem = None, None
    try:
        location = locate_data(config.data, layout)
        spans = (
            list_spans(config.data, location) if in_spans else [whole_data(location, config.data)]
        )
        window = (
            choose_window(spans, config.data, settings, now) if in_spans else Window(tuple(spans))
        )
    except DataError as error:
        problem = str(error)
    writing = any(is_being_written(span, settings, now) for span in spans)
    ahead = [str(unsettled(span, settings, now)) for span in spans if is_dated_ahead(span, now)]
    if not in_spans and spans and (why := unsettled(spans[0], settings, now)):
        window, problem = None, f"data.path: {why}"
    return DataSnapshot(tuple(spans), window, problem, writing, tuple(ahead))


def compare_with_trained(
    snapshot: DataSnapshot,
    trained: Mapping[str, Mapping[str, str]],
    decided_at: datetime | None,
    in_spans: bool,
    accepted: Collection[int] = (),
) -> DataChanges:
    """Finds what is new in a snapshot.

    Args:
      snapshot: the data as it is now; without a window nothing counts as new.
      trained: signature and digest of the spans that the last run trained on, by number.
      decided_at: when the last run was decided on.
      in_spans: whether the data comes in spans.
      accepted: spans that had been refused, and may be trained on now.
    """
    window = snapshot.window
    if window is None:
        return DataChanges()
    changed, notes = [], list(window.notes)
    for span in window.spans:
        known = trained.get(str(span.number))
        if span.number in accepted:
            changed.append(span)
        elif known is not None and known["signature"] == span.signature:
            continue
        elif known is not None and known["digest"] == _digest(span):
            delivered = f"span {span}" if in_spans else "the data"
            notes.append(f"{delivered} was delivered again with the same content")
        else:
            changed.append(span)
    if decided_at is not None:
        notes += _late_spans(snapshot.spans, window, decided_at)
    return DataChanges(tuple(changed), tuple(notes))


def _late_spans(spans: Sequence[Span], window: Window, decided_at: datetime) -> list[str]:
    """Says which spans came since the last decision but are too old for the window."""
    return [
        f"span {span} came late, before the window, and is not trained on"
        for span in spans
        if span.number < window.spans[0].number and span.modified > decided_at.timestamp()
    ]


@functools.lru_cache(maxsize=1000)
def _digest(span: Span) -> str:
    """Returns the digest of a span, cached: its files are large, and checks come every few
    minutes.
    """
    return span.digest()
