"""The files of a request log: one or more Parquet files per hour, in a folder per day.

Rows are first appended to a stream of batches in a hidden folder. Every half second, the server
writes its queue to the stream. When the file is full or its hour has passed, the process converts
the stream to a Parquet file, which appears atomically. If the process is killed, another process
converts the stream later. Each batch has a checksum, as Arrow's reader may crash the process on
damaged data.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

MAX_ROWS = 65_536
MAX_BYTES = 32 << 20
"""The size limit of a file. If a file reaches the limit, a new file is started for the same hour.
"""
_UNFINISHED = ".unfinished"
_STREAM, _DAMAGED, _PARQUET = ".rows", ".damaged", ".parquet"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FILE = re.compile(r"\d\d-\d{4}-[0-9a-f]{6}")
_HEAD = struct.Struct("<QQII")
"""The head of each batch, which follows the stream's name: the number of earlier rows, the size of
the batch in bytes, the number of its rows, and its checksum."""
_HEAD_CHECKSUM = struct.Struct("<I")
"""The checksum of the name and the head, which follows the head."""


class UnfinishedFile:
    """A locked stream of rows, which becomes a Parquet file."""

    def __init__(
        self, folder: Path, schema: pa.Schema, now: datetime, max_bytes: int = MAX_BYTES
    ) -> None:
        """Creates a stream with a size limit.

        Raises:
          OSError: the stream cannot be created.
        """
        self._folder, self.schema, self._max_bytes = folder, schema, max_bytes
        self.hour, self.rows, self.size = now.strftime("%Y-%m-%dT%H"), 0, 0
        streams = folder / _UNFINISHED
        streams.mkdir(parents=True, exist_ok=True)
        while True:
            self._path = streams / f"{self.hour}-{now:%M%S}-{secrets.token_hex(3)}{_STREAM}"
            self._file = self._path.open("x+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file.fileno()).st_nlink:
                return
            # Another worker found the stream without a lock, and removed it as abandoned.
            self._file.close()

    @property
    def is_full(self) -> bool:
        """Whether the next rows belong in a new file."""
        return self.rows >= MAX_ROWS or self.size >= self._max_bytes

    def append(self, batch: pa.RecordBatch) -> None:
        """Appends rows to the stream.

        Raises:
          OSError: the disk is full or fails. The stream is unchanged.
        """
        content = _to_bytes(self._path.stem, batch, self.rows)
        remaining = memoryview(content)
        try:
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(content)
        self.rows += batch.num_rows

    def finish(self) -> RowLoss | None:
        """Converts the stream to a Parquet file.

        Returns:
          The lost rows if a part of the stream could not be read, or else None.

        Raises:
          OSError: the disk is full or fails. `finish_abandoned` may convert the stream later.
        """
        with self._file:
            return _to_parquet(self._path, self._file, self._folder)


class RowLoss(NamedTuple):
    """The loss of rows in a stream that could not be read completely."""

    stream: str
    """The current name of the stream."""
    kept: int
    """The number of rows that could be read and are in a Parquet file."""
    lost: int
    """The lowest number of rows that could not be read. After the last readable head, the number of
    rows is unknown."""
    is_damaged: bool
    """Whether the stream is damaged and was kept. If not, it was only truncated."""


def unfinished_streams(folder: Path) -> list[Path]:
    """Returns the streams that are in progress or abandoned, except for damaged streams."""
    paths = (folder / _UNFINISHED).glob("*")
    return sorted(path for path in paths if path.suffix == _STREAM and _time_of(path))


def finish_abandoned(path: Path, folder: Path) -> RowLoss | None:
    """Converts an abandoned stream to a Parquet file.

    Args:
      path: a path from `unfinished_streams`.

    Returns:
      The lost rows if a part of the stream could not be read. None if no rows were lost, or if
      another process has the stream.

    Raises:
      OSError: the disk is full or fails. The conversion may be retried.
    """
    with _locked(path) as file:
        return None if file is None else _to_parquet(path, file, folder)


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO | None]:
    """Yields a file under an exclusive lock, or None if another process uses or removed it."""
    try:
        file = path.open("r+b", buffering=0)  # On NFS, locks require write access.
    except FileNotFoundError:
        yield None
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file if _has_path(file, path) else None


def _has_path(file: BinaryIO, path: Path) -> bool:
    """Returns whether an open file still has this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _to_parquet(stream: Path, file: BinaryIO, folder: Path) -> RowLoss | None:
    """Converts a locked stream to a Parquet file, and removes the stream unless it is damaged."""
    file.seek(0)
    content = _read(file.read(), stream.stem)
    if content.batches:
        table = pa.Table.from_batches(content.batches).combine_chunks()
        day, _, name = stream.stem.partition("T")
        scratch = stream.with_suffix(_PARQUET)
        try:
            pq.write_table(table, scratch, compression="zstd")
            with scratch.open("rb") as written:
                os.fsync(written.fileno())
            (folder / day).mkdir(exist_ok=True)
            scratch.replace(folder / day / f"{name}{_PARQUET}")
        finally:
            scratch.unlink(missing_ok=True)
    if content.is_damaged:
        stream = stream.rename(stream.with_suffix(_DAMAGED))
    else:
        stream.unlink(missing_ok=True)
    if not (content.is_damaged or content.is_truncated):
        return None
    kept = sum(batch.num_rows for batch in content.batches)
    return RowLoss(stream.name, kept, content.rows - kept, content.is_damaged)


def _to_bytes(name: str, batch: pa.RecordBatch, first_row: int) -> bytes:
    """Returns a batch as bytes of a stream. The batch can be read even if others are damaged.

    Args:
      first_row: the number of earlier rows in the stream.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()
    # A client cannot log a forged head, as the name has a random part.
    head = name.encode() + _HEAD.pack(first_row, body.size, batch.num_rows, zlib.crc32(body))
    return b"".join((head, _HEAD_CHECKSUM.pack(zlib.crc32(head)), body))


class _Content(NamedTuple):
    """The readable content of a stream."""

    batches: list[pa.RecordBatch]
    """The batches that could be read."""
    rows: int
    """The number of rows that were written up to the last readable head."""
    is_damaged: bool
    """Whether the stream is damaged other than by truncation."""
    is_truncated: bool
    """Whether the end of the stream is missing, as if the process was killed while writing."""


def _read(content: bytes, name: str) -> _Content:
    """Returns the readable content of a stream with the given name."""
    marker, batches = name.encode(), []
    position = end = total_rows = 0
    is_damaged = ends_early = False
    while (position := content.find(marker, position)) >= 0:
        head_end = position + len(marker) + _HEAD.size
        head, body_start = content[position:head_end], head_end + _HEAD_CHECKSUM.size
        if content[head_end:body_start] == _HEAD_CHECKSUM.pack(zlib.crc32(head)):
            first_row, size, rows, checksum = _HEAD.unpack(head[len(marker) :])
            body = content[body_start : body_start + size]
            if first_row >= total_rows:
                is_damaged |= first_row > total_rows
                total_rows = first_row + rows
                if len(body) == size and zlib.crc32(body) == checksum:
                    with pa.ipc.open_stream(body) as reader:
                        batches.append(reader.read_next_batch())
                    is_damaged |= position > end
                    position = end = body_start + size
                    continue
                ends_early = position == end and len(body) < size
        position += 1
    remaining = len(content) - end
    head_size = len(marker) + _HEAD.size + _HEAD_CHECKSUM.size
    is_truncated = ends_early or 0 < remaining < head_size
    is_damaged |= remaining > 0 and not is_truncated
    return _Content(batches, total_rows, is_damaged, is_truncated)


class CleanupResult(NamedTuple):
    """The result of `delete_oldest`."""

    deleted: int
    error: OSError | None
    """The error of the last file that could not be deleted, or None."""


def delete_oldest(folder: Path, max_bytes: int) -> CleanupResult:
    """Deletes the oldest files until the log is at most as large as its limit.

    Damaged streams are deleted first, and then whole days, so that no span loses only a part of its
    rows. If only one day remains, its oldest files are deleted.
    """
    remaining = sorted((time, path) for path in folder.glob("*/*") if (time := _time_of(path)))
    sizes = {path: _size(path) for _, path in remaining}
    total, deleted, error = sum(sizes.values()), 0, None
    remaining = [(time, path) for time, path in remaining if not _is_scratch(path)]
    while remaining and total > max_bytes:
        (day, _), oldest = remaining[0]
        selected = [path for (other_day, _), path in remaining if other_day == day]
        if len(selected) == len(remaining) or not day:
            selected = [oldest]
        del remaining[: len(selected)]
        for path in selected:
            try:
                if _delete(path):
                    total -= sizes[path]
                    deleted += 1
            except OSError as failure:
                error = failure
    return CleanupResult(deleted, error)


def _is_scratch(path: Path) -> bool:
    """Returns whether a file is the unfinished conversion of a stream in the same folder."""
    is_unfinished = path.parent.name == _UNFINISHED and path.suffix == _PARQUET
    return is_unfinished and path.with_suffix(_STREAM).exists()


def _time_of(path: Path) -> tuple[str, str] | None:
    """Returns the day and the name of a file of the log, or None for other files.

    The day of a damaged stream is empty, so that damaged streams are deleted first.
    """
    day, name = path.parent.name, path.stem
    if day == _UNFINISHED:
        day, _, name = name.partition("T")
    elif path.suffix != _PARQUET:
        return None
    if not (_DAY.fullmatch(day) and _FILE.fullmatch(name)):
        return None
    return ("" if path.suffix == _DAMAGED else day, name)


def _delete(path: Path) -> bool:
    """Deletes a file unless a process uses it, and returns whether the file no longer exists."""
    if path.parent.name == _UNFINISHED:
        with _locked(path) as file:
            if file is None:
                return not path.exists()
            path.unlink(missing_ok=True)
        return True
    path.unlink(missing_ok=True)
    with suppress(OSError):  # The folder has other files, or another worker has deleted it.
        path.parent.rmdir()
    return True


def _size(path: Path) -> int:
    """Returns the size of a file in bytes, or 0 if another worker has removed the file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def now_utc() -> datetime:
    """Returns the current time in UTC, which is part of the names of files and folders."""
    return datetime.now(UTC)
