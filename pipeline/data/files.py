"""Lists the files of a config's data or of a request log, with their spans.

The files are listed without TFX, so that a wrong path is reported immediately and polling is cheap.
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
from trainer_module.errors import DataError
from trainer_module.sections import import_registered

ALL_FILES = "all"
"""The name of the only input split if the splits are hash buckets."""


@dataclass(frozen=True)
class DataLocation:
    """The location of the files of a config's data."""

    base: str
    """The path or URI of the folder."""
    patterns: Mapping[str, str]
    """The globs below the folder by input split; a glob may contain placeholders of spans."""
    is_elsewhere: bool = False
    """Whether the files are on another machine and cannot be checked on this machine."""

    def check(self) -> None:
        """Raises DataError if a glob matches no local file."""
        if not self.is_elsewhere:
            for pattern in self.patterns.values():
                check_files_exist(self.base, pattern)


def locate_data(data: DataSettings, layout: Layout) -> DataLocation:
    """Returns the folder and the globs of the data, whether or not files exist.

    Data of `builtin:` is unpacked first. If the files are on another machine, the folder is
    `data.path` unchanged.
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
    """Returns the separate files of labels, or an empty tuple if the config has no `data.labels`.

    Raises:
      DataError: no file matches.
    """
    if data.labels is None:
        return ()
    paths = map(Path, find_label_files(str(Path(data.labels.path).absolute())))
    return tuple(file for path in paths for file in _local_file(path))


def revision_of(files: Sequence[File]) -> str:
    """Returns a hash of the files' paths, sizes and modification times, or "" without files."""
    if not files:
        return ""
    states = [(file.path, file.size, file.modified) for file in files]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:16]


def with_span_and_version(
    files: Iterable[File], pattern: str
) -> Iterator[tuple[tuple[int, int | None], File]]:
    """Yields the files whose paths match a pattern, each after its span and version numbers."""
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
    defined: set[str] = set()

    def group(match: re.Match[str]) -> str:
        name, width = match[1], match[2]
        if name in defined:
            return f"(?P={name})"
        defined.add(name)
        number = rf"\d{{{width}}}" if width else r"\d+"
        return f"(?P<{name}>{_DIGITS.get(name, number)})"

    return re.compile(_ESCAPED.sub(group, text))


def _character_class(match: re.Match[str]) -> str:
    """Returns the regular expression of a glob's character class, such as [!a-c]."""
    return f"[{'^' if match[1] else ''}{match[2].replace(chr(92) + '-', '-')}]"


def _span_and_version(groups: Mapping[str, str | None]) -> tuple[int, int | None] | None:
    """Returns the numbers of span and version, or None for an invalid date, such as 2026-02-30."""
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
    """Returns the files that match a glob with placeholders, without hidden files.

    Raises:
      DataError: the name of a file is not UTF-8, which neither TFX nor Arrow can open.
    """
    glob = PLACEHOLDER.sub("*", pattern)
    if is_remote(base):
        # Beam lists object stores. Only they need its import, which takes a second.
        from apache_beam.io.filesystems import FileSystems

        (result,) = FileSystems.match([posixpath.join(base, glob)])
        files = [
            File(entry.path, entry.size_in_bytes, entry.last_updated_in_seconds)
            for entry in result.metadata_list
        ]
    else:
        files = [file for path in Path(base).glob(glob) for file in _local_file(path)]
    files = [file for file in files if not is_hidden(file.path)]
    for path in (file.path for file in files):
        if path != path.encode(errors="replace").decode():
            raise DataError(f"The name of the file {path!r} is not UTF-8; rename the file.")
    return files


def _local_file(path: Path) -> Iterator[File]:
    """Yields the file at a path; yields nothing for a folder or a broken link."""
    try:
        state = path.stat()
    except OSError:
        return
    if stat.S_ISREG(state.st_mode):
        yield File(str(path), state.st_size, state.st_mtime)


def span_folder(pattern: str) -> str:
    """Returns the part of a pattern that is the folder of a span.

    The result is empty if a file name contains a placeholder, as then spans have no folders.
    """
    parts = posixpath.dirname(pattern).split("/")
    depths = [depth for depth, part in enumerate(parts, 1) if PLACEHOLDER.search(part)]
    in_folders = len(PLACEHOLDER.findall("/".join(parts)))
    has_folder = len(PLACEHOLDER.findall(pattern)) == in_folders
    return "/".join(parts[: depths[-1]]) if depths and has_folder else ""


def list_empty_folders(base: str, folder: str) -> list[File]:
    """Returns the local folders that match a glob and contain no file, as files of zero bytes.

    The result is empty for object stores, which have no empty folders.
    """
    if is_remote(base) or not folder:
        return []
    paths = [path for path in Path(base).glob(PLACEHOLDER.sub("*", folder)) if path.is_dir()]
    empty = [path for path in paths if not any(below.is_file() for below in path.rglob("*"))]
    return [File(str(path), 0, path.stat().st_mtime) for path in empty]


_LARGEST_WITHOUT_ROWS = 1 << 20
"""The largest size of a file without rows, in bytes; no header is longer."""


def are_empty(files: Iterable[File], data: DataSettings) -> bool:
    """Returns whether none of the files has a row."""
    return not any(_holds_rows(file, data.format, data.csv.model_dump_json()) for file in files)


@functools.lru_cache(maxsize=1000)
def _holds_rows(file: File, data_format: str, settings: str) -> bool:
    """Returns whether a file has a row. Results are cached, as polling repeats the question.

    Args:
      data_format: the format of the data.
      settings: the dialect of CSV files as JSON.
    """
    check = FORMATS[data_format].holds_rows
    if not check or not file.size or file.size > _LARGEST_WITHOUT_ROWS:
        return bool(file.size)
    csv = CsvSettings.model_validate_json(settings)
    holds_rows: bool = import_registered(check)(file.path, csv)
    return holds_rows


_LOG_FILES = "*/*.parquet"
"""The glob of the files of a request log, which has a folder for each day."""


def list_requests(pattern: str) -> list[File]:
    """Returns the files of a request log, oldest first.

    Args:
      pattern: the folder of the log, or a glob of its files; the glob may contain the placeholders
        of a date.
    """
    path = Path(pattern).absolute()
    base, glob = resolve_input(str(path / _LOG_FILES if path.is_dir() else path), "parquet")
    return sorted(list_files(base, glob), key=lambda file: (file.modified, file.path))


def count_rows(files: Iterable[File]) -> dict[str, int]:
    """Returns the number of rows of each complete Parquet file, by path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = {}
    for file in files:
        try:
            counts[file.path] = pq.read_metadata(file.path).num_rows
        except (OSError, pa.ArrowInvalid):  # The file was deleted or is no Parquet file.
            continue
    return counts


def newest_files_with_rows(files: Sequence[File], rows: int) -> list[File]:
    """Returns the fewest newest files that have at least a number of rows, oldest first.

    If all files together have fewer rows, the result is all files.
    """
    chosen: list[File] = []
    for file in reversed(files):
        chosen.insert(0, file)
        rows -= count_rows([file]).get(file.path, 0)
        if rows <= 0:
            break
    return chosen


def show_files(files: Sequence[File]) -> str:
    """Returns the names of the first and last file, such as `2026-01-05/08-15 to 2026-01-05/09`."""
    names = [posixpath.splitext("/".join(file.path.split("/")[-2:]))[0] for file in files]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
