"""Where a config's data is, found without TFX, so that a wrong path costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.example_gen.builtin import BUILTIN_DATA
from components.example_gen.formats import FORMATS
from components.example_gen.paths import check_files_exist, is_remote, resolve_input
from pipeline.config.sections.data import BUILTIN_PREFIX, DataSettings
from pipeline.layout import Layout

ALL_FILES = "all"
"""The one input split, where hash buckets make the output splits."""


@dataclass(frozen=True)
class DataLocation:
    """The files of a config's data."""

    base: str
    """A folder, or URI."""
    patterns: Mapping[str, str]
    """By input split, a glob below the folder, which may hold {SPAN}, {VERSION} or a date."""
    is_elsewhere: bool = False
    """Whether the files are those of another machine, and cannot be looked at here."""

    def check(self) -> None:
        """Raises DataError if no local file matches one of the globs; there may be no globs."""
        if not self.is_elsewhere:
            for pattern in self.patterns.values():
                check_files_exist(self.base, pattern)


def locate_data(data: DataSettings, layout: Layout) -> DataLocation:
    """Finds the folder and the globs, whether or not a file is there.

    Shipped data is unpacked first where need be. Where the files are elsewhere, the folder is the
    config's path as it stands.
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
