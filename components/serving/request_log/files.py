"""The files of a log: a Parquet file an hour or more, in a folder a day, which appear whole.

Rows go first to a hidden stream of batches, of which a killed process loses no more than the last
half second; another process makes a whole file of what it left. Each batch of a stream has a
checksum: Arrow's reader is no safe one, and ends the process at some damages.
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
"""Of a file; then another one is begun, also within the hour."""
_UNFINISHED = ".unfinished"
_STREAM, _DAMAGED, _PARQUET = ".rows", ".damaged", ".parquet"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FILE = re.compile(r"\d\d-\d{4}-[0-9a-f]{6}")
_HEAD = struct.Struct("<QQII")
"""Before each batch, after the stream's name: how many rows are before it, its bytes, its rows and
their checksum."""
_SUM = struct.Struct("<I")
"""The checksum of all that, which comes next."""


class UnfinishedFile:
    """Rows that are being written; a locked stream, which becomes a Parquet file."""

    def __init__(
        self, folder: Path, schema: pa.Schema, now: datetime, most_bytes: int = MOST_BYTES
    ) -> None:
        """Begins a file, which is full at some bytes.

        Raises:
          OSError: it cannot be written.
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
            # Before it was locked, another worker took it for one that was left.
            self._file.close()

    @property
    def is_full(self) -> bool:
        """Whether the next rows go to another file."""
        return self.rows >= MOST_ROWS or self.size >= self._most_bytes

    def append(self, batch: pa.RecordBatch) -> None:
        """Adds rows.

        Raises:
          OSError: there is no room for them; the file is as it was.
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

    def finish(self) -> Loss | None:
        """Makes a whole file of it.

        Returns:
          What could not be read again, if anything could not.

        Raises:
          OSError: there is no room; `finish_left` does it later.
        """
        with self._file:
            return _to_parquet(self._path, self._file, self._folder)


class Loss(NamedTuple):
    """A stream that could not be read as a whole."""

    stream: str
    """Its name, now."""
    kept: int
    """Rows that could be read, and are in a whole file."""
    lost: int
    """Rows that could not, as far as what is left of the stream says."""
    is_aside: bool
    """Whether the stream was kept: it is damaged, and not just cut off at its end."""


def unfinished(folder: Path) -> list[Path]:
    """Returns the streams that processes are writing, or have left, but for what is damaged."""
    found = (folder / _UNFINISHED).glob("*")
    return sorted(path for path in found if path.suffix == _STREAM and _time_of(path))


def finish_left(path: Path, folder: Path) -> Loss | None:
    """Makes a whole file of a stream, if the process has ended that wrote it.

    Args:
      path: one of `unfinished`.
      folder: of the log.

    Returns:
      What could not be read, if anything could not.

    Raises:
      OSError: there is no room, or the disk fails; it may be tried again.
    """
    with _alone_with(path) as file:
        return None if file is None else _to_parquet(path, file, folder)


@contextmanager
def _alone_with(path: Path) -> Iterator[BinaryIO | None]:
    """Locks a file that a process has left; gives None if somebody has it, or had."""
    try:
        file = path.open("r+b", buffering=0)  # NFS locks only what may be written.
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
    """Returns whether an open file still has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _to_parquet(stream: Path, file: BinaryIO, folder: Path) -> Loss | None:
    """Takes a locked stream, of which nothing is left afterwards unless it is damaged."""
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
    return Loss(stream.name, kept, content.known - kept, content.is_damaged)


def _to_bytes(name: str, batch: pa.RecordBatch, first: int) -> bytes:
    """Returns a batch as it is in a stream: any other that is damaged leaves it readable."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()
    # The name has a part that nobody knows who might put such a head into a request.
    head = name.encode() + _HEAD.pack(first, body.size, batch.num_rows, zlib.crc32(body))
    return b"".join((head, _SUM.pack(zlib.crc32(head)), body))


class _Content(NamedTuple):
    """What is found in a stream."""

    batches: list[pa.RecordBatch]
    """As they were written."""
    known: int
    """Rows up to the last head that could be read."""
    is_damaged: bool
    """Whether anything is wrong but that its end is missing."""
    is_cut: bool
    """Whether its end is missing, as of a process that was killed while it wrote."""


def _read(content: bytes, name: str) -> _Content:
    marker, batches = name.encode(), []
    place = end = known = 0
    is_damaged = ends_early = False
    while (place := content.find(marker, place)) >= 0:
        start = place + len(marker) + _HEAD.size
        head, body = content[place:start], start + _SUM.size
        if content[start:body] == _SUM.pack(zlib.crc32(head)):
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
    is_cut = ends_early or 0 < left < len(marker) + _HEAD.size + _SUM.size
    return _Content(batches, known, is_damaged or (left > 0 and not is_cut), is_cut)


class Room(NamedTuple):
    """What `make_room` has done."""

    deleted: int
    """Files."""
    error: OSError | None
    """Why a file could not be deleted, if one could not."""


def make_room(folder: Path, most_bytes: int) -> Room:
    """Deletes damaged streams, then the oldest days, or the oldest files of a single one.

    A span is never left with a part of its rows, as long as there is another one to delete.
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
    return Room(deleted, error)


def _is_scratch(path: Path) -> bool:
    """Returns whether it belongs to whoever has the stream beside it, and is being made of that."""
    is_unfinished = path.parent.name == _UNFINISHED and path.suffix == _PARQUET
    return is_unfinished and path.with_suffix(_STREAM).exists()


def _time_of(path: Path) -> tuple[str, str] | None:
    """Returns the day and the name of one of a log's files; None of what is somebody else's.

    Damaged streams have no day, so that they go first.
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
    """Deletes one of the files, unless a process is at work on it; says whether it is gone."""
    if path.parent.name == _UNFINISHED:
        with _alone_with(path) as file:
            if file is None:
                return not path.exists()
            path.unlink(missing_ok=True)
        return True
    path.unlink(missing_ok=True)
    with suppress(OSError):  # It holds something else, or another worker was faster.
        path.parent.rmdir()
    return True


def _size(path: Path) -> int:
    """In bytes; 0 if another worker has taken it away."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def now_utc() -> datetime:
    """Returns the time that names files and folders."""
    return datetime.now(UTC)
