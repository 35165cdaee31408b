"""The spans at a config's data path, and the window of spans that a run trains on.

Spans are listed here without TFX, so that a scheduler can check every few minutes; TFX's own driver
reads a span.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path

from components.example_gen.paths import is_remote
from pipeline.clock import is_future
from pipeline.config.sections.data import NO_SPAN, DataSettings, SpanKind, has_spans, span_kind
from pipeline.config.sections.schedule import MissingSpan, ScheduleSettings, WindowSettings
from pipeline.data.files import (
    DataLocation,
    File,
    are_empty,
    label_files,
    list_empty_folders,
    list_files,
    span_folder,
    with_span_and_version,
)
from trainer_module.errors import DataError, counted
from trainer_module.settings.durations import show_duration

_SHOWN = 5
"""The most spans that a message names."""


@dataclass(frozen=True)
class Span:
    """A span in its latest version."""

    number: int
    version: int | None
    files: tuple[File, ...]
    kind: SpanKind = SpanKind.NUMBER
    """The meaning of the number: a count, a day or an hour."""
    labels: tuple[File, ...] = ()
    """The files of all later labels, some of which belong to the span's rows."""

    def __str__(self) -> str:
        """Returns the name of the span: 2026-01-05, 2026-01-05T08 or 12, and its version if any."""
        return self.name + ("" if self.version is None else f" version {self.version}")

    @property
    def name(self) -> str:
        """The date, hour or number of the span."""
        return self.kind.show(self.number)

    @property
    def modified(self) -> float:
        """The modification time of the span's latest file, in seconds since 1970."""
        return max((file.modified for file in self.files), default=0.0)

    @property
    def last_modified(self) -> float:
        """The modification time of the latest file, labels included."""
        return max((file.modified for file in (*self.files, *self.labels)), default=0.0)

    @property
    def signature(self) -> str:
        """A hash of the files' paths, sizes and modification times; nothing is read."""
        seen = ((file.path, file.size, file.modified) for file in (*self.files, *self.labels))
        return hashlib.sha256(repr((self.version, *seen)).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Returns a hash of the files' contents and names; for a remote span, its signature."""
        if any(is_remote(file.path) for file in self.files):
            return self.signature
        digest = hashlib.sha256()
        for file in (*self.files, *self.labels):
            digest.update(posixpath.basename(file.path).encode())
            with Path(file.path).open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Window:
    """The spans that a run trains on, oldest first, and notes on the choice for the user."""

    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()
    empty: tuple[Span, ...] = ()
    """The spans of the window that are left out, as they have no rows."""

    @property
    def newest(self) -> Span:
        """The newest span, on which the model is evaluated."""
        return self.spans[-1]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the spans."""
        return [span.number for span in self.spans]

    def __str__(self) -> str:
        """Returns the range of spans, such as `2026-01-01 to 2026-01-07, 7 of them`."""
        if len(self.spans) == 1:
            return f"span {self.newest}"
        return f"spans {self.spans[0].name} to {self.newest.name}, {len(self.spans)} of them"


def list_spans(data: DataSettings, location: DataLocation) -> list[Span]:
    """Returns the spans at the data path, oldest first, each in its latest version.

    A span is complete when each input split has a file. A span with an empty folder has no rows.
    Later labels may belong to any span, so each span lists all files of labels.

    Raises:
      DataError: the path has no {SPAN} and no date.
    """
    if not has_spans(data):
        raise DataError(f"data.path: {data.path!r} has no {{SPAN}} and no {{YYYY}}-{{MM}}-{{DD}}")
    found: dict[tuple[int, int | None], dict[str, list[File]]] = {}
    for split, pattern in location.patterns.items():
        files = list_files(location.base, pattern)
        for key, file in with_span_and_version(files, posixpath.join(location.base, pattern)):
            found.setdefault(key, {}).setdefault(split, []).append(file)
    labels = label_files(data)
    whole = {key: splits for key, splits in found.items() if set(splits) == set(location.patterns)}
    # In ascending order, so that the latest version of a span is kept.
    latest = {
        number: Span(number, version, _sorted(whole[number, version]), span_kind(data), labels)
        for number, version in sorted(whole, key=lambda key: (key[0], key[1] or 0))
    }
    listed = {number for number, _ in found}
    for pattern in location.patterns.values():
        folder = span_folder(pattern)
        for (number, _), file in with_span_and_version(
            list_empty_folders(location.base, folder), posixpath.join(location.base, folder)
        ):
            if number not in listed:
                latest[number] = Span(number, None, (file,), span_kind(data))
    return [latest[number] for number in sorted(latest)]


def whole_data(location: DataLocation, data: DataSettings) -> Span:
    """Returns data without spans as one span.

    Raises:
      DataError: there is no local file.
    """
    location.check()
    files = {
        split: list_files(location.base, pattern) for split, pattern in location.patterns.items()
    }
    return Span(NO_SPAN, None, _sorted(files), labels=label_files(data))


def _sorted(splits: Mapping[str, list[File]]) -> tuple[File, ...]:
    return tuple(sorted((f for files in splits.values() for f in files), key=lambda f: f.path))


def choose_window(
    spans: Iterable[Span],
    data: DataSettings,
    settings: ScheduleSettings,
    now: datetime,
    through: int | None = None,
) -> Window:
    """Returns the window that ends at the newest span that is complete and has a row.

    Args:
      spans: all spans, oldest first.
      data: how their files are read.
      settings: the window, the handling of gaps, and when a file counts as complete.
      now: the current time, with its time zone.
      through: the span to end at; default: the newest complete span.

    Raises:
      DataError: there is no span, a span of the window is missing and `missing_span` is `fail`, or
        a span is still being written.
    """
    unsure: list[Span] = []
    waiting: list[Span] = []
    spans = [span for span in spans if through is None or span.number <= through]
    while spans and (
        (why := unsettled(spans[-1], settings, now)) or are_empty(spans[-1].files, data)
    ):
        (waiting if why is None else unsure).insert(0, spans.pop())
    notes = _note_waiting(unsure, waiting, settings, now)
    if not spans or (through is not None and spans[-1].number != through):
        wanted = "no span" if through is None else f"no span {through}"
        raise DataError(
            f"data.path: there is {wanted} to train on" + (f"; {'; '.join(notes)}" if notes else "")
        )
    first = _first_number(spans, settings.window)
    chosen = [span for span in spans if span.number >= first]
    if not chosen:
        begins = spans[-1].kind.show(first)
        raise DataError(
            f"data.path: there is no span to train on; the window begins at {begins}, after the "
            f"newest span, {spans[-1]}"
        )
    if unready := [why for span in chosen if (why := unsettled(span, settings, now))]:
        more = f" (and {len(unready) - 1} more)" if len(unready) > 1 else ""
        raise DataError(f"data.path: in the window, {unready[0]}{more}")
    empty = [span for span in chosen if are_empty(span.files, data)]
    usable = [span for span in chosen if span not in empty]
    notes += _note_gaps(usable, max(first, spans[0].number), settings)
    return Window(tuple(usable), tuple(notes), (*empty, *waiting))


def _note_waiting(
    unsure: list[Span], empty: list[Span], settings: ScheduleSettings, now: datetime
) -> list[str]:
    """Returns notes on why spans are not read yet; spans with the same reason share a note."""
    ahead = [span for span in unsure if is_dated_ahead(span, now)]
    written = [span for span in unsure if span not in ahead]
    notes = []
    for spans in filter(None, (ahead, written, empty)):
        newest, others = spans[-1], len(spans) - 1
        why = unsettled(newest, settings, now) or f"span {newest} is empty"
        more = (
            f"; the same holds for {counted(others, 'span')} before it, from {spans[0]} on"
            if others
            else ""
        )
        notes.append(f"{why}; it is not read yet{more}")
    return notes


def _note_gaps(usable: list[Span], first: int, settings: ScheduleSettings) -> list[str]:
    """Returns notes on the spans that a window lacks.

    Raises:
      DataError: a span is missing, and `missing_span` is `fail`.
    """
    known = {span.number for span in usable}
    numbers = range(first, usable[-1].number)
    # Numbers may be far apart: no more are listed than are named.
    missing = list(islice((n for n in numbers if n not in known), _SHOWN + 1))
    if not missing:
        return []
    shown = ", ".join(map(usable[-1].kind.show, missing[:_SHOWN]))
    gap = f"{shown}{' and more' if len(missing) > _SHOWN else ''}"
    if settings.missing_span is MissingSpan.FAIL:
        raise DataError(
            f"data.path: the window lacks span {gap}, or its files are empty; deliver it, or "
            "set schedule.missing_span: skip to train without"
        )
    return [f"the window lacks span {gap}"]


def unsettled(span: Span, settings: ScheduleSettings, now: datetime) -> str | None:
    """Returns the reason why a span cannot be read yet; None if it can."""
    name = "the data" if span.number == NO_SPAN else f"span {span}"
    if is_dated_ahead(span, now):
        return (
            f"{name} has files dated {_dated(span, settings)}, in the future of this machine's "
            "clock: set the clock right, or `touch` the files"
        )
    if is_being_written(span, settings, now):
        limit = show_duration(settings.settle)
        return (
            f"{name} is still being written (schedule.settle: files changed less than {limit} ago)"
        )
    return None


def is_being_written(span: Span, settings: ScheduleSettings, now: datetime) -> bool:
    """Returns whether files have changed so recently that more may follow."""
    is_recent = span.last_modified > (now - settings.settle).timestamp()
    return is_recent and not is_dated_ahead(span, now)


def is_dated_ahead(span: Span, now: datetime) -> bool:
    """Returns whether files have modification times in the future, which say nothing."""
    return is_future(datetime.fromtimestamp(span.last_modified, UTC), now)


def _dated(span: Span, settings: ScheduleSettings) -> str:
    moment = datetime.fromtimestamp(span.last_modified, settings.zone)
    return moment.strftime("%Y-%m-%d %H:%M %Z")


def _first_number(spans: list[Span], window: WindowSettings) -> int:
    """Returns the number at which the window begins, whether or not that span exists."""
    if window.last is not None:
        return spans[-1].number - window.last + 1
    if window.since is not None:
        since = window.since
        return spans[-1].kind.first(since) if isinstance(since, date) else since
    return spans[0].number
