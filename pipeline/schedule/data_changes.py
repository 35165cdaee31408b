"""What a run would train on now, and what of it the last one has not seen."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.config.settings import PipelineConfig
from pipeline.config.span_patterns import has_spans
from pipeline.data.location import locate_data
from pipeline.data.spans import Span, Window, choose_window, list_spans, whole_data
from pipeline.layout import Layout
from trainer_module.errors import DataError

_SHOWN = 5
"""So many spans are named in a message."""


@dataclass(frozen=True)
class DataSnapshot:
    """The data as it is now."""

    spans: tuple[Span, ...]
    """All there are; data without spans counts as one."""
    window: Window | None
    """What a run would train on."""
    problem: str | None = None
    """Why there is no window."""
    is_being_written: bool = False
    """Whether files have changed so recently that it is worth to wait for them."""

    @property
    def signatures(self) -> dict[str, str]:
        """Of the window's spans, by number."""
        spans = self.window.spans if self.window else ()
        return {str(span.number): span.signature for span in spans}


@dataclass(frozen=True)
class DataChanges:
    """How the window differs from what was trained on."""

    fresh: tuple[Span, ...] = ()
    """Spans that are new, or whose content is."""
    notes: tuple[str, ...] = ()
    """What has come but is no reason to train."""

    def __str__(self) -> str:
        """Such as `new or changed: 2026-01-05`."""
        names = ", ".join(str(span) for span in self.fresh[-_SHOWN:])
        more = len(self.fresh) - _SHOWN
        return f"new or changed: {names}" + (f" and {more} older ones" if more > 0 else "")


def take_snapshot(config: PipelineConfig, layout: Layout, now: datetime) -> DataSnapshot:
    """Finds the data that is there; what cannot be used is said in the view."""
    settings = config.schedule_or_default
    latest_write = (now - settings.settle).timestamp()
    spans: list[Span] = []
    try:
        in_spans, location = has_spans(config.data), locate_data(config.data, layout)
        spans = list_spans(config.data, location) if in_spans else [whole_data(location)]
        writing = any(span.modified > latest_write for span in spans)
        if in_spans:
            window = choose_window(spans, settings, now)
        elif writing:
            return DataSnapshot(
                tuple(spans), None, "data.path: its files are still being written", True
            )
        else:
            window = Window(tuple(spans))
    except DataError as error:
        writing = any(span.modified > latest_write for span in spans)
        return DataSnapshot(tuple(spans), None, str(error), writing)
    return DataSnapshot(tuple(spans), window, None, writing)


def compare(
    snapshot: DataSnapshot,
    trained: Mapping[str, Mapping[str, str]],
    since: datetime | None,
    in_spans: bool,
) -> DataChanges:
    """What is new in a view that has a window.

    Args:
      view: the data as it is now.
      trained: signature and digest by the number of a span, of the last run's window.
      since: when the last run was decided on.
      in_spans: whether the data comes in spans.
    """
    window = snapshot.window
    if window is None:
        return DataChanges()
    fresh, notes = [], list(window.notes)
    for span in window.spans:
        known = trained.get(str(span.number))
        if known is None:
            fresh.append(span)
        elif known["signature"] != span.signature:
            if known["digest"] == _digest(span):
                what = f"span {span}" if in_spans else "the data"
                notes.append(f"{what} was delivered again with the same content")
            else:
                fresh.append(span)
    notes += [
        f"span {span} came late, before the window, and is not trained on"
        for span in snapshot.spans
        if span.number < window.spans[0].number
        and since is not None
        and span.modified > since.timestamp()
    ]
    return DataChanges(tuple(fresh), tuple(notes))


@functools.lru_cache(maxsize=1000)
def _digest(span: Span) -> str:
    """Read once as long as the files stay as they are: a scheduler asks every few minutes."""
    return span.digest()
