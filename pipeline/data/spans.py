"""The spans at a config's data path, and the window of them that a run trains on.

TFX's own driver reads a span; which ones there are is found here without TFX, so that a scheduler
can look every few minutes. Spans are numbers: those of {SPAN}, or days since 1970 of a date.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path

from components.example_gen.paths import is_hidden, is_remote
from pipeline.clock import is_future
from pipeline.config.schedule import MissingSpan, ScheduleSettings, WindowSettings, show_duration
from pipeline.config.settings import DataSettings
from pipeline.config.span_patterns import EPOCH, NO_SPAN, has_spans, is_dated, show_span
from pipeline.data.location import DataLocation
from trainer_module.errors import DataError

_PLACEHOLDERS = re.compile(r"\\\{(SPAN|VERSION|YYYY|MM|DD)(?::(\d+))?\\\}")
_DIGITS = {"YYYY": r"\d{4}", "MM": r"\d{2}", "DD": r"\d{2}"}
_SHOWN = 5
"""So many spans are named in a message."""


@dataclass(frozen=True)
class File:
    """A file of a span."""

    path: str
    size: int
    """Bytes."""
    modified: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class Span:
    """One span, in its latest version."""

    number: int
    version: int | None
    files: tuple[File, ...]
    has_date: bool = False
    """Whether the number counts days."""

    def __str__(self) -> str:
        """As people know it: 2026-01-05, or 12, with its version if there is one."""
        return self.name + ("" if self.version is None else f" version {self.version}")

    @property
    def name(self) -> str:
        """Its date or number."""
        return show_span(self.number, self.has_date)

    @property
    def modified(self) -> float:
        """When the last of its files was written, in seconds since 1970."""
        return max(file.modified for file in self.files)

    @property
    def is_empty(self) -> bool:
        """Whether its files hold nothing."""
        return not any(file.size for file in self.files)

    @property
    def signature(self) -> str:
        """Changes when a file is added, removed or written again; nothing is read."""
        seen = ((file.path, file.size, file.modified) for file in self.files)
        return hashlib.sha256(repr((self.version, *seen)).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Changes with the contents of its files alone; a remote span's is its signature."""
        if any(is_remote(file.path) for file in self.files):
            return self.signature
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(posixpath.basename(file.path).encode())
            with Path(file.path).open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Window:
    """The spans that a run trains on, oldest first, and what people should know of the choice."""

    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()

    @property
    def newest(self) -> Span:
        """The one that is evaluated on."""
        return self.spans[-1]

    @property
    def numbers(self) -> list[int]:
        """Of its spans."""
        return [span.number for span in self.spans]

    def __str__(self) -> str:
        """Such as `2026-01-01 to 2026-01-07, 7 spans`."""
        if len(self.spans) == 1:
            return f"span {self.newest}"
        return f"spans {self.spans[0].name} to {self.newest.name}, {len(self.spans)} of them"


def list_spans(data: DataSettings, location: DataLocation) -> list[Span]:
    """The spans at the data path, oldest first, each in its latest version.

    A span in which one of the input splits has no file is not there yet.

    Raises:
      DataError: the path has no {SPAN} and no date.
    """
    if not has_spans(data):
        raise DataError(f"data.path: {data.path!r} has no {{SPAN}} and no {{YYYY}}-{{MM}}-{{DD}}")
    found: dict[tuple[int, int | None], dict[str, list[File]]] = {}
    for split, pattern in location.patterns.items():
        regex = _regex(posixpath.join(location.base, pattern))
        for file in _list_files(location.base, pattern):
            match = regex.fullmatch(file.path)
            if match and (key := _span_and_version(match.groupdict())):
                found.setdefault(key, {}).setdefault(split, []).append(file)
    whole = {key: splits for key, splits in found.items() if set(splits) == set(location.patterns)}
    # In ascending order, so that the latest version of a span stays.
    latest = {
        number: Span(number, version, _sorted(whole[number, version]), is_dated(data))
        for number, version in sorted(whole, key=lambda key: (key[0], key[1] or 0))
    }
    return [latest[number] for number in sorted(latest)]


def whole_data(location: DataLocation) -> Span:
    """Data without spans, as if it were one.

    Raises:
      DataError: no local file is there.
    """
    location.check()
    files = {
        split: _list_files(location.base, pattern) for split, pattern in location.patterns.items()
    }
    return Span(NO_SPAN, None, _sorted(files))


def _sorted(splits: Mapping[str, list[File]]) -> tuple[File, ...]:
    return tuple(sorted((f for files in splits.values() for f in files), key=lambda f: f.path))


def choose_window(
    spans: Iterable[Span],
    settings: ScheduleSettings,
    now: datetime,
    through: int | None = None,
) -> Window:
    """The window that ends at the newest span that is whole.

    Args:
      spans: those there are, oldest first.
      settings: the window, what a gap does, and when a file is no longer being written.
      now: with its time zone.
      through: the span to end at; default: the newest that is whole.

    Raises:
      DataError: there is no span, one of the window is missing and `missing_span` is `fail`, or
        one of them is still being written.
    """
    notes = []
    spans = [span for span in spans if through is None or span.number <= through]
    while spans and (unsettled(spans[-1], settings, now) or spans[-1].is_empty):
        span = spans.pop()
        why = f"span {span} is empty" if span.is_empty else unsettled(span, settings, now)
        notes.append(f"{why}, and waits")
    if not spans or (through is not None and spans[-1].number != through):
        wanted = "no span" if through is None else f"no span {through}"
        raise DataError(
            f"data.path: there is {wanted} to train on" + (f"; {'; '.join(notes)}" if notes else "")
        )
    first = _first_number(spans, settings.window)
    chosen = [span for span in spans if span.number >= first]
    if not chosen:
        begins = show_span(first, spans[-1].has_date)
        raise DataError(
            f"data.path: there is no span to train on; the window begins at {begins}, after the "
            f"newest span, {spans[-1]}"
        )
    if waiting := [why for span in chosen if (why := unsettled(span, settings, now))]:
        more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
        raise DataError(f"data.path: in the window, {waiting[0]}{more}")
    usable = {span.number: span for span in chosen if not span.is_empty}
    known_from = max(first, spans[0].number)
    numbers = range(known_from, spans[-1].number)
    # Numbers may be far apart: no more of them than are named.
    missing = list(islice((n for n in numbers if n not in usable), _SHOWN + 1))
    if missing:
        dated = spans[-1].has_date
        shown = ", ".join(show_span(n, dated) for n in missing[:_SHOWN])
        gap = f"{shown}{' and more' if len(missing) > _SHOWN else ''}"
        if settings.missing_span is MissingSpan.FAIL:
            raise DataError(
                f"data.path: the window lacks span {gap}, or its files are empty; deliver it, or "
                "set schedule.missing_span: skip to train without"
            )
        notes.append(f"the window lacks span {gap}")
    return Window(tuple(usable.values()), tuple(notes))


def unsettled(span: Span, settings: ScheduleSettings, now: datetime) -> str | None:
    """Why a span is not to be read yet, for people; None if it may be."""
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
    """Whether files have changed so recently that more may follow."""
    is_recent = span.modified > (now - settings.settle).timestamp()
    return is_recent and not is_dated_ahead(span, now)


def is_dated_ahead(span: Span, now: datetime) -> bool:
    """Whether files are of the future, so that nobody knows when they were written."""
    return is_future(datetime.fromtimestamp(span.modified, UTC), now)


def _dated(span: Span, settings: ScheduleSettings) -> str:
    moment = datetime.fromtimestamp(span.modified, settings.zone)
    return moment.strftime("%Y-%m-%d %H:%M %Z")


def _first_number(spans: list[Span], window: WindowSettings) -> int:
    """The number that the window begins with, whether or not there is such a span."""
    if window.last is not None:
        return spans[-1].number - window.last + 1
    if window.since is not None:
        since = window.since
        return (since - EPOCH).days if isinstance(since, date) else since
    return spans[0].number


def _regex(pattern: str) -> re.Pattern[str]:
    """Matches the paths of a glob with placeholders, which become groups."""
    text = re.escape(pattern)
    text = re.sub(r"\\\[(!?)(.*?)\\\]", _character_class, text)
    text = text.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    seen: set[str] = set()

    def group(match: re.Match[str]) -> str:
        name, width = match[1], match[2]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        number = rf"\d{{{width}}}" if width else r"\d+"
        return f"(?P<{name}>{_DIGITS.get(name, number)})"

    return re.compile(_PLACEHOLDERS.sub(group, text))


def _character_class(match: re.Match[str]) -> str:
    """A glob's [!a-c], of which the rest has been escaped."""
    return f"[{'^' if match[1] else ''}{match[2].replace(chr(92) + '-', '-')}]"


def _span_and_version(groups: Mapping[str, str | None]) -> tuple[int, int | None] | None:
    """None for digits that are no date, such as 2026-02-30."""
    version = groups.get("VERSION")
    if span := groups.get("SPAN"):
        number = int(span)
    else:
        try:
            day = date(*(int(groups[part] or 0) for part in ("YYYY", "MM", "DD")))
        except ValueError:
            return None
        number = (day - EPOCH).days
    return number, None if version is None else int(version)


def _list_files(base: str, pattern: str) -> list[File]:
    """The files that match a glob with placeholders, but for hidden ones."""
    glob = re.sub(r"\{(?:SPAN|VERSION|YYYY|MM|DD)(?::\d+)?\}", "*", pattern)
    if is_remote(base):
        # Beam knows the object stores; it is imported for them alone, as it takes a second.
        from apache_beam.io.filesystems import FileSystems

        (result,) = FileSystems.match([posixpath.join(base, glob)])
        found = result.metadata_list
        files = [File(m.path, m.size_in_bytes, m.last_updated_in_seconds) for m in found]
    else:
        paths = [path for path in Path(base).glob(glob) if path.is_file()]
        files = [File(str(p), (s := p.stat()).st_size, s.st_mtime) for p in paths]
    return [file for file in files if not is_hidden(file.path)]
