"""Compares the data that a run would train on now with the data of the last run."""

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
"""The maximum number of spans that a message names."""


@dataclass(frozen=True)
class DataSnapshot:
    """The current state of the data."""

    spans: tuple[Span, ...]
    """The spans at the data path; data without spans counts as one span."""
    window: Window | None
    """The window that a run would train on."""
    problem: str | None = None
    """The reason why there is no window."""
    is_being_written: bool = False
    """Whether files have changed so recently that more may follow."""
    left_out: tuple[str, ...] = ()
    """Sentences about spans that are left out until a user acts."""

    @property
    def signatures(self) -> dict[str, str]:
        """The signatures of the window's spans, by the span's number."""
        spans = self.window.spans if self.window else ()
        return {str(span.number): span.signature for span in spans}


@dataclass(frozen=True)
class DataChanges:
    """The differences between the window and the data of the last run."""

    spans: tuple[Span, ...] = ()
    """Spans of the window that are new, or have other content."""
    notes: tuple[str, ...] = ()
    """Sentences about new data that does not cause a training."""

    def __str__(self) -> str:
        """Returns the changed spans, such as `new or changed: 2026-01-05`."""
        names = ", ".join(str(span) for span in self.spans[-MAX_SPANS_SHOWN:])
        more = len(self.spans) - MAX_SPANS_SHOWN
        return f"new or changed: {names}" + (f" and {more} older spans" if more > 0 else "")


def take_snapshot(config: PipelineConfig, layout: Layout, now: datetime) -> DataSnapshot:
    """Returns the current data, and the window that a run would train on.

    Unusable data raises no error: the snapshot contains the problem.
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
    if not in_spans and spans and (reason := unsettled(spans[0], settings, now)):
        window, problem = None, f"data.path: {reason}"
    return DataSnapshot(tuple(spans), window, problem, writing, tuple(ahead))


def compare_with_trained(
    snapshot: DataSnapshot,
    trained: Mapping[str, Mapping[str, str]],
    decided_at: datetime | None,
    in_spans: bool,
    accepted: Collection[int] = (),
) -> DataChanges:
    """Returns the changes of the data since the last run.

    Args:
      snapshot: the current data; without a window, nothing counts as new.
      trained: the signature and digest of each span that the last run trained on, by number.
      decided_at: the time of the last decision to run.
      in_spans: whether the data comes in spans.
      accepted: the numbers of refused spans that a user has accepted.
    """
    window = snapshot.window
    if window is None:
        return DataChanges()
    changed, notes = [], list(window.notes)
    for span in window.spans:
        earlier = trained.get(str(span.number))
        if span.number in accepted:
            changed.append(span)
        elif earlier is not None and earlier["signature"] == span.signature:
            continue
        elif earlier is not None and earlier["digest"] == _digest(span):
            subject = f"span {span}" if in_spans else "the data"
            notes.append(f"{subject} was delivered again with the same content")
        else:
            changed.append(span)
    if decided_at is not None:
        notes += _late_spans(snapshot.spans, window, decided_at)
    return DataChanges(tuple(changed), tuple(notes))


def _late_spans(spans: Sequence[Span], window: Window, decided_at: datetime) -> list[str]:
    """Returns notes on spans that arrived after the last decision but are before the window."""
    return [
        f"span {span} arrived late and is before the window, so no run trains on it"
        for span in spans
        if span.number < window.spans[0].number and span.modified > decided_at.timestamp()
    ]


@functools.lru_cache(maxsize=1000)
def _digest(span: Span) -> str:
    """Returns the digest of a span. Digests are cached, as files are large and checks frequent."""
    return span.digest()
