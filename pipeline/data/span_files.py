"""The files and folders at a data path, and which span each belongs to."""

from __future__ import annotations

import hashlib
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from components.example_gen.paths import (
    DATE,
    HOUR,
    NAMES,
    PLACEHOLDER,
    find_label_files,
    is_hidden,
    is_remote,
)
from pipeline.config.sections.data import DataSettings, SpanKind

_ESCAPED = re.compile(rf"\\\{{({'|'.join(NAMES)})(?::(\d+))?\\\}}")
_DIGITS = {"YYYY": r"\d{4}", "MM": r"\d{2}", "DD": r"\d{2}", HOUR: "(?:[01][0-9]|2[0-3])"}


@dataclass(frozen=True)
class File:
    """A file of a span."""

    path: str
    size: int
    """Bytes."""
    modified: float
    """Seconds since 1970."""


def label_files(data: DataSettings) -> tuple[File, ...]:
    """The files of labels that come later; none where the rows have their labels.

    Raises:
      DataError: there is none of them.
    """
    if data.labels is None:
        return ()
    paths = map(Path, find_label_files(str(Path(data.labels.path).absolute())))
    return tuple(file for path in paths for file in _local_file(path))


def revision_of(files: Sequence[File]) -> str:
    """Changes when one of some files is added, removed or written again; nothing is read."""
    if not files:
        return ""
    seen = [(file.path, file.size, file.modified) for file in files]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def keyed(files: Iterable[File], pattern: str) -> Iterator[tuple[tuple[int, int | None], File]]:
    """Files with the numbers of their span and version; not those that have none."""
    regex = _regex(pattern)
    for file in files:
        match = regex.fullmatch(file.path)
        if match and (key := _span_and_version(match.groupdict())):
            yield key, file


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

    return re.compile(_ESCAPED.sub(group, text))


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
            day = date(*(int(groups[part] or 0) for part in DATE))
        except ValueError:
            return None
        hour = groups.get(HOUR)
        number = SpanKind.DAY.first(day) if hour is None else SpanKind.HOUR.first(day) + int(hour)
    return number, None if version is None else int(version)


def list_files(base: str, pattern: str) -> list[File]:
    """The files that match a glob with placeholders, but for hidden ones."""
    glob = PLACEHOLDER.sub("*", pattern)
    if is_remote(base):
        # Beam knows the object stores; it is imported for them alone, as it takes a second.
        from apache_beam.io.filesystems import FileSystems

        (result,) = FileSystems.match([posixpath.join(base, glob)])
        found = result.metadata_list
        files = [File(m.path, m.size_in_bytes, m.last_updated_in_seconds) for m in found]
    else:
        files = [file for path in Path(base).glob(glob) for file in _local_file(path)]
    return [file for file in files if not is_hidden(file.path)]


def _local_file(path: Path) -> Iterator[File]:
    """A file, and nothing where there is a folder; asked once, as there may be 100,000 of them."""
    try:
        state = path.stat()
    except OSError:
        return  # A link that leads nowhere.
    if stat.S_ISREG(state.st_mode):
        yield File(str(path), state.st_size, state.st_mtime)


def span_folder(pattern: str) -> str:
    """The beginning of a pattern that names a span's folder; empty where the files' names do."""
    parts = posixpath.dirname(pattern).split("/")
    named = [number for number, part in enumerate(parts, 1) if PLACEHOLDER.search(part)]
    is_whole = len(PLACEHOLDER.findall(pattern)) == len(PLACEHOLDER.findall("/".join(parts)))
    return "/".join(parts[: named[-1]]) if named and is_whole else ""


def list_empty_folders(base: str, folder: str) -> list[File]:
    """The local folders that match a glob with placeholders and hold no file, as files of no bytes.

    Object stores have no such folders.
    """
    if is_remote(base) or not folder:
        return []
    paths = [path for path in Path(base).glob(PLACEHOLDER.sub("*", folder)) if path.is_dir()]
    empty = [path for path in paths if not any(below.is_file() for below in path.rglob("*"))]
    return [File(str(path), 0, path.stat().st_mtime) for path in empty]
