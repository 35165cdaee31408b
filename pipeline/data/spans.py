"""Lists the spans at a config's data path, and chooses the window that a run trains on.

Spans are listed without TFX, so that a scheduler can check every few minutes.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path

from components.example_gen.paths import is_remote, literal
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

_MAX_SHOWN = 5
"""The largest number of spans that a message names."""


@dataclass(frozen=True)
class Span:
    """A span in its latest version."""

    number: int
    version: int | None
    files: tuple[File, ...]
    kind: SpanKind = SpanKind.NUMBER
    """The kind of the number: a plain number, a day or an hour."""
    labels: tuple[File, ...] = ()
    """The separate files of labels of all spans; some of the labels belong to this span's rows."""

    def __str__(self) -> str:
        """Returns the name of the span, such as `2026-01-05`, and the version if there is one."""
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
        """A hash of the version and the files' paths, sizes and modification times."""
        states = ((file.path, file.size, file.modified) for file in (*self.files, *self.labels))
        return hashlib.sha256(repr((self.version, *states)).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Returns a hash of the files' names and contents; the signature if files are remote."""
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
    """The spans that a run trains on, oldest first."""

    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()
    """Notes for the user on spans that are not in the window."""
    empty: tuple[Span, ...] = ()
    """The spans that the window leaves out, as they have no rows."""

    @property
    def newest(self) -> Span:
        """The newest span, on which the model is evaluated."""
        return self.spans[-1]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the spans."""
        return [span.number for span in self.spans]

    def __str__(self) -> str:
        """Returns the range of spans, such as `7 spans, 2026-01-01 to 2026-01-07`."""
        if len(self.spans) == 1:
            return f"span {self.newest}"
        return f"{len(self.spans)} spans, {self.spans[0].name} to {self.newest.name}"


def list_spans(data: DataSettings, location: DataLocation) -> list[Span]:
    """Returns the spans at the data path, oldest first, each in its latest version.

    A span is listed if each input split has a file, or if it has an empty local folder. Each span
    contains all separate files of labels, as their labels may belong to any span.

    Raises:
      DataError: the path has no {SPAN} and no date.
    """
    if not has_spans(data):
        raise DataError(
            f"data.path: {data.path!r} contains neither {{SPAN}} nor {{YYYY}}-{{MM}}-{{DD}}"
        )
    by_key: dict[tuple[int, int | None], dict[str, list[File]]] = {}
    for split, pattern in location.patterns.items():
        files = list_files(location.base, pattern)
        whole = posixpath.join(literal(location.base), pattern)
        for key, file in with_span_and_version(files, whole):
            by_key.setdefault(key, {}).setdefault(split, []).append(file)
    labels = label_files(data)
    input_splits = set(location.patterns)
    complete = {key: splits for key, splits in by_key.items() if set(splits) == input_splits}
    # The order is ascending, so that the latest version of a span remains.
    latest = {
        number: Span(number, version, _sorted(complete[number, version]), span_kind(data), labels)
        for number, version in sorted(complete, key=lambda key: (key[0], key[1] or 0))
    }
    with_files = {number for number, _ in by_key}
    for pattern in location.patterns.values():
        folder = span_folder(pattern)
        for (number, _), file in with_span_and_version(
            list_empty_folders(location.base, folder),
            posixpath.join(literal(location.base), folder),
        ):
            if number not in with_files:
                latest[number] = Span(number, None, (file,), span_kind(data))
    return [latest[number] for number in sorted(latest)]


def whole_data(location: DataLocation, data: DataSettings) -> Span:
    """Returns data without spans as one span.

    Raises:
      DataError: a glob matches no local file.
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
    """Returns the window that ends at the newest span that is settled and has a row.

    Args:
      spans: all spans, oldest first.
      settings: the window, the reaction to gaps, and the time after which a file is settled.
      now: the current time, with its time zone.
      through: the last span of the window; default: the newest settled span with a row.

    Raises:
      DataError: there is no span; or a span of the window is missing and `missing_span` is `fail`;
        or a span of the window is still being written.
    """
    not_settled: list[Span] = []
    without_rows: list[Span] = []
    spans = [span for span in spans if through is None or span.number <= through]
    while spans and (
        (reason := unsettled(spans[-1], settings, now)) or are_empty(spans[-1].files, data)
    ):
        (without_rows if reason is None else not_settled).insert(0, spans.pop())
    notes = _note_unread(not_settled, without_rows, settings, now)
    if not spans or (through is not None and spans[-1].number != through):
        requested = "no span" if through is None else f"no span {span_kind(data).show(through)}"
        explanation = f"; {'; '.join(notes)}" if notes else ""
        raise DataError(f"data.path: there is {requested} to train on{explanation}")
    first = _first_number(spans, settings.window)
    chosen = [span for span in spans if span.number >= first]
    if not chosen:
        begins = spans[-1].kind.show(first)
        raise DataError(
            f"data.path: there is no span to train on; the window begins at span {begins}, after "
            f"the newest span, {spans[-1]}"
        )
    reasons = [reason for span in chosen if (reason := unsettled(span, settings, now))]
    if reasons:
        more = f" (and {counted(len(reasons) - 1, 'other span')})" if len(reasons) > 1 else ""
        raise DataError(f"data.path: in the window, {reasons[0]}{more}")
    empty = [span for span in chosen if are_empty(span.files, data)]
    usable = [span for span in chosen if span not in empty]
    notes += _note_gaps(usable, max(first, spans[0].number), settings)
    return Window(tuple(usable), tuple(notes), (*empty, *without_rows))


def _note_unread(
    not_settled: list[Span], without_rows: list[Span], settings: ScheduleSettings, now: datetime
) -> list[str]:
    """Returns notes with the reasons why spans are not read yet, a note for each reason."""
    ahead = [span for span in not_settled if is_dated_ahead(span, now)]
    written = [span for span in not_settled if span not in ahead]
    notes = []
    for spans in filter(None, (ahead, written, without_rows)):
        newest, others = spans[-1], len(spans) - 1
        reason = unsettled(newest, settings, now) or f"span {newest} is empty"
        more = (
            f"; the same reason applies to {counted(others, 'earlier span')}, from {spans[0]} on"
            if others
            else ""
        )
        notes.append(f"{reason}; it is not read yet{more}")
    return notes


def _note_gaps(usable: list[Span], first: int, settings: ScheduleSettings) -> list[str]:
    """Returns notes on the spans that a window lacks.

    Raises:
      DataError: a span is missing, and `missing_span` is `fail`.
    """
    present = {span.number for span in usable}
    numbers = range(first, usable[-1].number)
    # Numbers may be far apart, so that only the first missing numbers are listed.
    missing = list(islice((n for n in numbers if n not in present), _MAX_SHOWN + 1))
    if not missing:
        return []
    shown = ", ".join(map(usable[-1].kind.show, missing[:_MAX_SHOWN]))
    gap = f"{shown}{' and more' if len(missing) > _MAX_SHOWN else ''}"
    if settings.missing_span is MissingSpan.FAIL:
        raise DataError(
            f"data.path: the window lacks span {gap}, or its files are empty; add the files, or "
            "set schedule.missing_span: skip to train without these spans"
        )
    return [f"the window lacks span {gap}"]


def unsettled(span: Span, settings: ScheduleSettings, now: datetime) -> str | None:
    """Returns the reason why a span cannot be read yet, or None if the span is settled."""
    name = "the data" if span.number == NO_SPAN else f"span {span}"
    if is_dated_ahead(span, now):
        return (
            f"{name} has files dated {_dated(span, settings)}, later than this machine's "
            "clock: correct the clock, or `touch` the files"
        )
    if is_being_written(span, settings, now):
        limit = show_duration(settings.settle)
        return (
            f"{name} is still being written (schedule.settle: files changed less than {limit} ago)"
        )
    return None


def is_being_written(span: Span, settings: ScheduleSettings, now: datetime) -> bool:
    """Returns whether files have changed within the last `schedule.settle`."""
    is_recent = span.last_modified > (now - settings.settle).timestamp()
    return is_recent and not is_dated_ahead(span, now)


def is_dated_ahead(span: Span, now: datetime) -> bool:
    """Returns whether files have modification times in the future."""
    return is_future(datetime.fromtimestamp(span.last_modified, UTC), now)


def _dated(span: Span, settings: ScheduleSettings) -> str:
    moment = datetime.fromtimestamp(span.last_modified, settings.zone)
    return moment.strftime("%Y-%m-%d %H:%M %Z")


def _first_number(spans: list[Span], window: WindowSettings) -> int:
    """Returns the number of the window's first span, which may be missing."""
    if window.last is not None:
        return spans[-1].number - window.last + 1
    if window.since is not None:
        since = window.since
        return spans[-1].kind.first(since) if isinstance(since, date) else since
    return spans[0].number
