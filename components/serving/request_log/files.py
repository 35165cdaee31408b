"""The files of a request log: one or more Parquet files per hour, in a folder per day.

Rows are first appended to a hidden stream of batches, of which a killed process loses at most the
last half second; another process later converts the stream to a Parquet file. Each batch has a
checksum, as Arrow's reader may crash the process on damaged data. Parquet files appear atomically.
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

MOST_ROWS = 65_536
MOST_BYTES = 32 << 20
"""The size limit of a file, beyond which a new file is started within the hour."""
_UNFINISHED = ".unfinished"
_STREAM, _DAMAGED, _PARQUET = ".rows", ".damaged", ".parquet"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FILE = re.compile(r"\d\d-\d{4}-[0-9a-f]{6}")
_HEAD = struct.Struct("<QQII")
"""The head of each batch, after the stream's name: the number of earlier rows, the size in bytes,
the number of rows, and the checksum of the batch."""
_HEAD_CHECKSUM = struct.Struct("<I")
"""The checksum of name and head, which follows them."""


class UnfinishedFile:
    """A locked stream of rows, which becomes a Parquet file."""

    def __init__(
        self, folder: Path, schema: pa.Schema, now: datetime, most_bytes: int = MOST_BYTES
    ) -> None:
        """Creates a stream with a size limit.

        Raises:
          OSError: the stream cannot be created.
        """
        self._folder, self.schema, self._most_bytes = folder, schema, most_bytes
        self.hour, self.rows, self.size = now.strftime("%Y-%m-%dT%H"), 0, 0
        place = folder / _UNFINISHED
        place.mkdir(parents=True, exist_ok=True)
        while True:
            self._path = place / f"{self.hour}-{now:%M%S}-{secrets.token_hex(3)}{_STREAM}"
            self._file = self._path.open("x+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file.fileno()).st_nlink:
                return
            # Before the lock, another worker took the stream for abandoned and removed it.
            self._file.close()

    @property
    def is_full(self) -> bool:
        """Whether the next rows belong in another file."""
        return self.rows >= MOST_ROWS or self.size >= self._most_bytes

    def append(self, batch: pa.RecordBatch) -> None:
        """Appends rows to the stream.

        Raises:
          OSError: the disk is full; the stream is unchanged.
        """
        content = _to_bytes(self._path.stem, batch, self.rows)
        left = memoryview(content)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(content)
        self.rows += batch.num_rows

    def finish(self) -> RowLoss | None:
        """Converts the stream to a Parquet file.

        Returns:
          The loss, if part of the stream could not be read.

        Raises:
          OSError: the disk is full; `finish_abandoned` may convert the stream later.
        """
        with self._file:
            return _to_parquet(self._path, self._file, self._folder)


class RowLoss(NamedTuple):
    """The loss of rows in a stream that could not be read completely."""

    stream: str
    """The current name of the stream."""
    kept: int
    """The number of rows that could be read, and are in a Parquet file."""
    lost: int
    """The number of rows that could not be read, as far as the rest of the stream shows."""
    is_damaged: bool
    """Whether the stream was kept, as it is damaged and not only truncated."""


def unfinished_streams(folder: Path) -> list[Path]:
    """Returns the streams that are in progress or abandoned, except for damaged ones."""
    found = (folder / _UNFINISHED).glob("*")
    return sorted(path for path in found if path.suffix == _STREAM and _time_of(path))


def finish_abandoned(path: Path, folder: Path) -> RowLoss | None:
    """Converts an abandoned stream to a Parquet file.

    Args:
      path: a path from `unfinished_streams`.
      folder: the folder of the log.

    Returns:
      The loss, if part of the stream could not be read; None also if a process still writes it.

    Raises:
      OSError: the disk is full or fails; a retry is possible.
    """
    with _locked(path) as file:
        return None if file is None else _to_parquet(path, file, folder)


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO | None]:
    """Yields a file under an exclusive lock; None if another process has it or finished it."""
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
            yield file if _is_at(path, file) else None


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Returns whether an open file still has this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _to_parquet(stream: Path, file: BinaryIO, folder: Path) -> RowLoss | None:
    """Converts a locked stream to a Parquet file; removes the stream unless it is damaged."""
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
    if not (content.is_damaged or content.is_cut):
        return None
    kept = sum(batch.num_rows for batch in content.batches)
    return RowLoss(stream.name, kept, content.known - kept, content.is_damaged)


def _to_bytes(name: str, batch: pa.RecordBatch, first: int) -> bytes:
    """Returns a batch in the format of a stream, in which other batches may be damaged."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()
    # The name has a random part, so that a logged request cannot contain a forged head.
    head = name.encode() + _HEAD.pack(first, body.size, batch.num_rows, zlib.crc32(body))
    return b"".join((head, _HEAD_CHECKSUM.pack(zlib.crc32(head)), body))


class _Content(NamedTuple):
    """The readable content of a stream."""

    batches: list[pa.RecordBatch]
    """The batches as they were written."""
    known: int
    """The number of rows up to the last readable head."""
    is_damaged: bool
    """Whether the stream is damaged other than by truncation."""
    is_cut: bool
    """Whether the stream is truncated, as by a process that was killed while writing."""


def _read(content: bytes, name: str) -> _Content:
    marker, batches = name.encode(), []
    place = end = known = 0
    is_damaged = ends_early = False
    while (place := content.find(marker, place)) >= 0:
        start = place + len(marker) + _HEAD.size
        head, body = content[place:start], start + _HEAD_CHECKSUM.size
        if content[start:body] == _HEAD_CHECKSUM.pack(zlib.crc32(head)):
            first, size, rows, checksum = _HEAD.unpack(head[len(marker) :])
            found = content[body : body + size]
            if first >= known:
                is_damaged |= first > known
                known = first + rows
                if len(found) == size and zlib.crc32(found) == checksum:
                    with pa.ipc.open_stream(found) as reader:
                        batches.append(reader.read_next_batch())
                    is_damaged |= place > end
                    place = end = body + size
                    continue
                ends_early = place == end and len(found) < size
        place += 1
    left = len(content) - end
    is_cut = ends_early or 0 < left < len(marker) + _HEAD.size + _HEAD_CHECKSUM.size
    return _Content(batches, known, is_damaged or (left > 0 and not is_cut), is_cut)


class CleanupResult(NamedTuple):
    """The result of `make_room`."""

    deleted: int
    """The number of deleted files."""
    error: OSError | None
    """The error of a file that could not be deleted."""


def make_room(folder: Path, most_bytes: int) -> CleanupResult:
    """Deletes damaged streams, then the oldest days; of a single day, the oldest files.

    As long as there are several days, no span loses only a part of its rows.
    """
    left = sorted((time, path) for path in folder.glob("*/*") if (time := _time_of(path)))
    sizes = {path: _size(path) for _, path in left}
    total, deleted, error = sum(sizes.values()), 0, None
    left = [(time, path) for time, path in left if not _is_scratch(path)]
    while left and total > most_bytes:
        (day, _), oldest = left[0]
        going = [path for (of, _), path in left if of == day]
        if len(going) == len(left) or not day:
            going = [oldest]
        del left[: len(going)]
        for path in going:
            try:
                if _delete(path):
                    total -= sizes[path]
                    deleted += 1
            except OSError as failure:
                error = failure
    return CleanupResult(deleted, error)


def _is_scratch(path: Path) -> bool:
    """Returns whether a file is the unfinished conversion of the stream beside it."""
    is_unfinished = path.parent.name == _UNFINISHED and path.suffix == _PARQUET
    return is_unfinished and path.with_suffix(_STREAM).exists()


def _time_of(path: Path) -> tuple[str, str] | None:
    """Returns the day and the name of a file of the log; None for other files.

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
    """Deletes a file unless a process is using it; returns whether the file is gone."""
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
    """Returns the size of a file in bytes; 0 if another worker has removed it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def now_utc() -> datetime:
    """Returns the current time in UTC, from which files and folders are named."""
    return datetime.now(UTC)
