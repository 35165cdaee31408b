"""The files of a log: a Parquet file an hour or more, in a folder a day, which appear whole.

Rows go first to a hidden stream of Arrow batches, of which a killed process loses no more than the
last half second; another process makes a whole file of what it left.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MOST_ROWS = 65_536
MOST_BYTES = 32 << 20
"""Of a file; then another one is begun, also within the hour."""
_UNFINISHED = ".unfinished"
_SUFFIX, _NEW = ".arrows", ".new"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FILE = re.compile(r"\d\d-\d{4}-[0-9a-f]{6}\.parquet")


class UnfinishedFile:
    """Rows that are being written; a locked stream, which becomes a Parquet file."""

    def __init__(self, folder: Path, schema: pa.Schema, now: datetime) -> None:
        """Begins a file.

        Raises:
          OSError: it cannot be written.
        """
        self._folder, self.schema = folder, schema
        self.hour, self.rows = now.strftime("%Y-%m-%dT%H"), 0
        place = folder / _UNFINISHED
        place.mkdir(parents=True, exist_ok=True)
        self._path = place / f"{self.hour}-{now:%M%S}-{secrets.token_hex(3)}{_SUFFIX}"
        # Other workers would take a stream without a lock for one that was left.
        new = self._path.with_suffix(_NEW)
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        new.rename(self._path)
        self.size = 0
        try:
            self._write(schema.serialize())
        except OSError:
            self._path.unlink()
            os.close(self._file)
            raise

    @property
    def is_full(self) -> bool:
        """Whether the next rows go to another file."""
        return self.rows >= MOST_ROWS or self.size >= MOST_BYTES

    def append(self, batch: pa.RecordBatch) -> None:
        """Adds rows.

        Raises:
          OSError: there is no room for them; the file is as it was.
        """
        self._write(batch.serialize())
        self.rows += batch.num_rows

    def _write(self, content: pa.Buffer) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += content.size

    def finish(self) -> None:
        """Makes a whole file of it.

        Raises:
          OSError: there is no room; `finish_left` does it later.
        """
        try:
            _to_parquet(self._path, self._folder)
        finally:
            os.close(self._file)


def finish_left(folder: Path) -> None:
    """Makes whole files of what processes have left that ended before they could.

    Raises:
      OSError: there is no room.
    """
    for path in sorted((folder / _UNFINISHED).glob(f"*{_SUFFIX}")):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _to_parquet(path, folder)
        except (BlockingIOError, FileNotFoundError):  # Somebody else has it, or had.
            continue
        finally:
            os.close(descriptor)


def _to_parquet(stream: Path, folder: Path) -> None:
    table = _read(stream)
    if table is not None and table.num_rows:
        day = stream.stem.partition("T")[0]
        scratch = stream.with_suffix(".parquet")
        try:
            pq.write_table(table, scratch, compression="zstd")
            with scratch.open("rb") as written:
                os.fsync(written.fileno())
            (folder / day).mkdir(exist_ok=True)
            scratch.replace(folder / day / scratch.name.removeprefix(f"{day}T"))
        finally:
            scratch.unlink(missing_ok=True)
    stream.unlink(missing_ok=True)


def _read(stream: Path) -> pa.Table | None:
    """The whole batches of a stream; None if there is not even its beginning."""
    batches: list[pa.RecordBatch] = []
    try:
        with stream.open("rb") as file, pa.ipc.open_stream(file) as reader:
            with suppress(pa.ArrowInvalid, OSError):  # It may be cut off within a batch.
                batches.extend(reader)
            return pa.Table.from_batches(batches, reader.schema).combine_chunks()
    except pa.ArrowInvalid:
        return None


def make_room(folder: Path, most_bytes: int) -> int:
    """Deletes the oldest day, as often as it takes, or the oldest files of a single one.

    A span is never left with a part of its rows, as long as there is another one to delete.

    Returns:
      How many files were deleted.
    """
    sizes = _sizes(path for path in folder.glob("*/*.parquet") if _is_ours(path))
    total = sum(sizes.values()) + sum(_sizes((folder / _UNFINISHED).glob("*")).values())
    deleted = 0
    while sizes and total > most_bytes:
        oldest = next(iter(sizes))
        days = {path.parent for path in sizes}
        going = [p for p in sizes if p.parent == oldest.parent] if len(days) > 1 else [oldest]
        for path in going:
            path.unlink(missing_ok=True)
            total -= sizes.pop(path)
        deleted += len(going)
        if oldest.parent not in {path.parent for path in sizes}:
            with suppress(OSError):  # It holds something else, or another worker was faster.
                oldest.parent.rmdir()
    return deleted


def _sizes(paths: Iterable[Path]) -> dict[Path, int]:
    """In bytes, in the order of the names, without what other workers take away meanwhile."""
    sizes = {}
    for path in sorted(paths):
        with suppress(FileNotFoundError):
            sizes[path] = path.stat().st_size
    return sizes


def _is_ours(path: Path) -> bool:
    return bool(_DAY.fullmatch(path.parent.name) and _FILE.fullmatch(path.name))


def now_utc() -> datetime:
    """The time that names files and folders."""
    return datetime.now(UTC)
