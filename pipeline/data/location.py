"""Where a config's data is, found without TFX, so that a wrong path costs nothing."""

from __future__ import annotations

from pathlib import Path

from components.example_gen.builtin import BUILTIN_DATA
from components.example_gen.paths import check_files_exist, is_remote, resolve_input
from pipeline.config.settings import BUILTIN_PREFIX, DataSettings
from pipeline.layout import Layout

ALL_FILES = "all"
"""The one input split, where hash buckets make the output splits."""


def locate_data(data: DataSettings, layout: Layout) -> tuple[str, dict[str, str]]:
    """The folder of the data, and a glob below it per input split.

    Shipped data is unpacked first where need be. Where the files are elsewhere, it is the config's
    path as it stands.

    Raises:
      DataError: no local file matches one of the globs.
    """
    base, patterns = locate_patterns(data, layout)
    if not layout.is_elsewhere:
        for pattern in patterns.values():
            check_files_exist(base, pattern)
    return base, patterns


def locate_patterns(data: DataSettings, layout: Layout) -> tuple[str, dict[str, str]]:
    """The same, whether or not a file is there."""
    globs = {name: value for name, value in data.splits.items() if isinstance(value, str)}
    if layout.is_elsewhere and not is_remote(data.path):
        return data.path, globs or {ALL_FILES: "*"}
    path = _absolute(data.path, layout)
    if globs:
        return path.rstrip("/"), globs
    base, pattern = resolve_input(path, data.format)
    return base, {ALL_FILES: pattern}


def _absolute(path: str, layout: Layout) -> str:
    if path.startswith(BUILTIN_PREFIX):
        return str(BUILTIN_DATA[path.removeprefix(BUILTIN_PREFIX)].locate(layout.builtin))
    return path if is_remote(path) else str(Path(path).absolute())
