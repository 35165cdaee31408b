"""The files of a config's data or of a request log: path, span, and whether they have rows.

They are listed without TFX, so that a wrong path is reported at once and polling is cheap.
"""

from __future__ import annotations

import functools
import hashlib
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from components.example_gen.builtin import BUILTIN_DATA
from components.example_gen.formats import FORMATS, CsvSettings
from components.example_gen.paths import (
    DATE,
    HOUR,
    NAMES,
    PLACEHOLDER,
    check_files_exist,
    find_label_files,
    is_hidden,
    is_remote,
    resolve_input,
)
from pipeline.config.sections.data import BUILTIN_PREFIX, DataSettings, SpanKind
from pipeline.layout import Layout
from trainer_module.sections import import_registered

ALL_FILES = "all"
"""The only input split if hash buckets make the output splits."""


@dataclass(frozen=True)
class DataLocation:
    """The location of the files of a config's data."""

    base: str
    """A folder, or the URI of one."""
    patterns: Mapping[str, str]
    """Globs below the folder by input split; a glob may contain {SPAN}, {VERSION} or a date."""
    is_elsewhere: bool = False
    """Whether the files are on another machine, so that they cannot be checked here."""

    def check(self) -> None:
        """Raises DataError if no local file matches one of the globs; there may be no globs."""
        if not self.is_elsewhere:
            for pattern in self.patterns.values():
                check_files_exist(self.base, pattern)


def locate_data(data: DataSettings, layout: Layout) -> DataLocation:
    """Returns the folder and the globs of the data, whether or not files exist.

    Shipped data is unpacked first. If the files are on another machine, the folder is the config's
    path unchanged.
    """
    globs = {name: value for name, value in data.splits.items() if isinstance(value, str)}
    if not FORMATS[data.format].has_files:
        return DataLocation(data.path, {}, is_elsewhere=layout.is_elsewhere)
    if layout.is_elsewhere and not is_remote(data.path):
        return DataLocation(data.path, globs or {ALL_FILES: "*"}, is_elsewhere=True)
    path = _absolute(data.path, layout)
    if globs:
        return DataLocation(path.rstrip("/"), globs, layout.is_elsewhere)
    base, pattern = resolve_input(path, data.format)
    return DataLocation(base, {ALL_FILES: pattern}, layout.is_elsewhere)


def _absolute(path: str, layout: Layout) -> str:
    if path.startswith(BUILTIN_PREFIX):
        return str(BUILTIN_DATA[path.removeprefix(BUILTIN_PREFIX)].locate(layout.builtin))
    return path if is_remote(path) else str(Path(path).absolute())


_ESCAPED = re.compile(rf"\\\{{({'|'.join(NAMES)})(?::(\d+))?\\\}}")
_DIGITS = {"YYYY": r"\d{4}", "MM": r"\d{2}", "DD": r"\d{2}", HOUR: "(?:[01][0-9]|2[0-3])"}


@dataclass(frozen=True)
class File:
    """A file of a span."""

    path: str
    size: int
    """The size in bytes."""
    modified: float
    """The modification time in seconds since 1970."""


def label_files(data: DataSettings) -> tuple[File, ...]:
    """Returns the files of labels that come later; empty if the rows contain their labels.

    Raises:
      DataError: no file matches.
    """
    if data.labels is None:
        return ()
    paths = map(Path, find_label_files(str(Path(data.labels.path).absolute())))
    return tuple(file for path in paths for file in _local_file(path))


def revision_of(files: Sequence[File]) -> str:
    """Returns a hash of paths, sizes and modification times, without reading the files."""
    if not files:
        return ""
    seen = [(file.path, file.size, file.modified) for file in files]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def with_span_and_version(
    files: Iterable[File], pattern: str
) -> Iterator[tuple[tuple[int, int | None], File]]:
    """Yields the files whose paths match a pattern, with their span and version numbers."""
    regex = _regex(pattern)
    for file in files:
        match = regex.fullmatch(file.path)
        if match and (key := _span_and_version(match.groupdict())):
            yield key, file


def _regex(pattern: str) -> re.Pattern[str]:
    """Returns a regular expression for the paths of a glob; placeholders become groups."""
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

    return re.compile(_ESCAPED.sub(group, text))


def _character_class(match: re.Match[str]) -> str:
    """Returns the regular expression of a glob's character class, such as [!a-c]."""
    return f"[{'^' if match[1] else ''}{match[2].replace(chr(92) + '-', '-')}]"


def _span_and_version(groups: Mapping[str, str | None]) -> tuple[int, int | None] | None:
    """Returns the numbers of span and version; None for an impossible date, such as 2026-02-30."""
    version = groups.get("VERSION")
    if span := groups.get("SPAN"):
        number = int(span)
    else:
        try:
            day = date(*(int(groups[part] or 0) for part in DATE))
        except ValueError:
            return None
        hour = groups.get(HOUR)
        number = SpanKind.DAY.first(day) if hour is None else SpanKind.HOUR.first(day) + int(hour)
    return number, None if version is None else int(version)


def list_files(base: str, pattern: str) -> list[File]:
    """Returns the files that match a glob with placeholders, without hidden files."""
    glob = PLACEHOLDER.sub("*", pattern)
    if is_remote(base):
        # Beam reads object stores; it is imported only for them, as that takes a second.
        from apache_beam.io.filesystems import FileSystems

        (result,) = FileSystems.match([posixpath.join(base, glob)])
        found = result.metadata_list
        files = [File(m.path, m.size_in_bytes, m.last_updated_in_seconds) for m in found]
    else:
        files = [file for path in Path(base).glob(glob) for file in _local_file(path)]
    return [file for file in files if not is_hidden(file.path)]


def _local_file(path: Path) -> Iterator[File]:
    """Yields the file at a path, and nothing for a folder; one `stat`, as there may be 100,000."""
    try:
        state = path.stat()
    except OSError:
        return  # A broken link.
    if stat.S_ISREG(state.st_mode):
        yield File(str(path), state.st_size, state.st_mtime)


def span_folder(pattern: str) -> str:
    """Returns the part of a pattern that is a span's folder; empty if only file names have the
    span.
    """
    parts = posixpath.dirname(pattern).split("/")
    named = [number for number, part in enumerate(parts, 1) if PLACEHOLDER.search(part)]
    is_whole = len(PLACEHOLDER.findall(pattern)) == len(PLACEHOLDER.findall("/".join(parts)))
    return "/".join(parts[: named[-1]]) if named and is_whole else ""


def list_empty_folders(base: str, folder: str) -> list[File]:
    """Returns the local folders that match a glob and contain no file, as files of zero bytes.

    Object stores have no empty folders.
    """
    if is_remote(base) or not folder:
        return []
    paths = [path for path in Path(base).glob(PLACEHOLDER.sub("*", folder)) if path.is_dir()]
    empty = [path for path in paths if not any(below.is_file() for below in path.rglob("*"))]
    return [File(str(path), 0, path.stat().st_mtime) for path in empty]


_LARGEST_WITHOUT_ROWS = 1 << 20
"""The size in bytes above which a file certainly has rows, as no header is that long."""


def are_empty(files: Iterable[File], data: DataSettings) -> bool:
    """Returns whether none of the files has a row."""
    return not any(_holds_rows(file, data.format, data.csv.model_dump_json()) for file in files)


@functools.lru_cache(maxsize=1000)
def _holds_rows(file: File, data_format: str, settings: str) -> bool:
    """Returns whether a file has a row; cached, as polling repeats every few minutes."""
    look = FORMATS[data_format].holds_rows
    if not look or not file.size or file.size > _LARGEST_WITHOUT_ROWS:
        return bool(file.size)
    holds_rows: bool = import_registered(look)(file.path, CsvSettings.model_validate_json(settings))
    return holds_rows


_IN_FOLDER = "*/*.parquet"
"""The glob of a request log's files, in a folder for each day."""


def list_requests(pattern: str) -> list[File]:
    """Returns the files of requests, oldest first.

    Args:
      pattern: the folder of a log, or a glob of its files, which may contain placeholders of a
        date.
    """
    path = Path(pattern).absolute()
    base, glob = resolve_input(str(path / _IN_FOLDER if path.is_dir() else path), "parquet")
    return sorted(list_files(base, glob), key=lambda file: (file.modified, file.path))


def count_rows(files: Iterable[File]) -> dict[str, int]:
    """Returns the number of rows by path, for files that exist and are complete."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = {}
    for file in files:
        try:
            counts[file.path] = pq.read_metadata(file.path).num_rows
        except (OSError, pa.ArrowInvalid):  # Deleted meanwhile, or another kind of file.
            continue
    return counts


def newest_with(files: Sequence[File], rows: int) -> list[File]:
    """Returns the newest files that together have a number of rows, oldest first; else all
    files.
    """
    chosen: list[File] = []
    for file in reversed(files):
        chosen.insert(0, file)
        rows -= count_rows([file]).get(file.path, 0)
        if rows <= 0:
            break
    return chosen


def show_files(files: Sequence[File]) -> str:
    """Returns the range of the files, such as `requests of 2026-01-05/08-1503-4fa2c1 to ...`."""
    names = [posixpath.splitext("/".join(file.path.split("/")[-2:]))[0] for file in files]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
