"""The files that `serve --log-requests` has written, found without TFX."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path

from components.example_gen.paths import resolve_input
from pipeline.data.span_files import File, list_files

_IN_FOLDER = "*/*.parquet"
"""A folder a day, as the log has it."""


def list_requests(pattern: str) -> list[File]:
    """The files of requests, oldest first.

    Args:
      pattern: the folder of a log, or a glob of its files, which may have a date's placeholders.
    """
    path = Path(pattern).absolute()
    base, glob = resolve_input(str(path / _IN_FOLDER if path.is_dir() else path), "parquet")
    return sorted(list_files(base, glob), key=lambda file: (file.modified, file.path))


def count_rows(files: Iterable[File]) -> dict[str, int]:
    """Rows by path, of files that are there and whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = {}
    for file in files:
        try:
            counts[file.path] = pq.read_metadata(file.path).num_rows
        except (OSError, pa.ArrowInvalid):  # It was deleted meanwhile, or somebody else's.
            continue
    return counts


def newest_with(files: Sequence[File], rows: int) -> list[File]:
    """The newest files that have so many rows together, oldest first; all, if they have fewer."""
    chosen: list[File] = []
    for file in reversed(files):
        chosen.insert(0, file)
        rows -= count_rows([file]).get(file.path, 0)
        if rows <= 0:
            break
    return chosen


def show_files(files: Sequence[File]) -> str:
    """From when to when, such as `requests of 2026-01-05/08-1503-4fa2c1 to ...`."""
    names = [posixpath.splitext("/".join(file.path.split("/")[-2:]))[0] for file in files]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
