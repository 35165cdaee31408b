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
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

MOST_ROWS = 65_536
MOST_BYTES = 32 << 20
"""Of a file; then another one is begun, also within the hour."""
_UNFINISHED = ".unfinished"
_STREAM, _NEW, _DAMAGED, _PARQUET = ".rows", ".new", ".damaged", ".parquet"
_STREAMS = (_STREAM, ".arrows")
"""The second is of earlier versions, which wrote no checksums."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FILE = re.compile(r"\d\d-\d{4}-[0-9a-f]{6}")
_NEW_SECONDS = 60.0
"""After which a new stream that nobody has locked has been left."""
_HEAD = struct.Struct("<QQII")
"""Before each batch, after the stream's name: how many rows are before it, its bytes, its rows and
their checksum."""
_SUM = struct.Struct("<I")
"""The checksum of all that, which comes next."""
_CHUNK = 1 << 16


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
        self._path = place / f"{self.hour}-{now:%M%S}-{secrets.token_hex(3)}{_STREAM}"
        # Other workers would take a stream without a lock for one that was left.
        new = self._path.with_suffix(_NEW)
        self._file = new.open("x+b", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        new.rename(self._path)

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
            if self.size:
                return _to_parquet(self._path, self._file, self._folder)
            self._path.unlink(missing_ok=True)
            return None


@dataclass(frozen=True)
class Loss:
    """A stream that could not be read as a whole."""

    stream: Path
    """Where it is now, if it was kept."""
    kept: int
    """Rows that could be read, and are in a whole file."""
    lost: int
    """Rows that could not, as far as what is left of the stream says."""
    is_aside: bool
    """Whether the stream was kept: it is damaged, and not just cut off at its end."""


def unfinished(folder: Path) -> list[Path]:
    """What processes are writing, or have left, but for what is damaged."""
    found = (folder / _UNFINISHED).glob("*")
    return sorted(path for path in found if _is_unfinished(path) and path.suffix != _DAMAGED)


def finish_left(path: Path, folder: Path) -> Loss | None:
    """Makes a whole file of a stream, if the process has ended that wrote it.

    Args:
      path: one of `unfinished`; what is no stream that has begun is deleted.
      folder: of the log.

    Returns:
      What could not be read, if anything could not.

    Raises:
      OSError: there is no room, or the disk fails; it may be tried again.
    """
    if path.suffix in _STREAMS:
        with _alone_with(path) as file:
            return None if file is None else _to_parquet(path, file, folder)
    # A Parquet file belongs to whoever has its stream, and is made again as long as there is one.
    if path.suffix == _NEW or not path.with_suffix(_STREAM).exists():
        _delete_left(path, older_than=_NEW_SECONDS)
    return None


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
            yield file if os.fstat(file.fileno()).st_nlink else None


def _to_parquet(stream: Path, file: BinaryIO, folder: Path) -> Loss | None:
    """Takes a locked stream, of which nothing is left afterwards if it was whole."""
    content = _read(file, stream.stem)
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
    if content.is_damaged or content.is_cut:
        return Loss(stream, content.kept, content.lost, content.is_damaged)
    return None


def _to_bytes(name: str, batch: pa.RecordBatch, first: int) -> bytes:
    """A batch as it is in a stream: any other that is damaged leaves it readable."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()
    # The name has a part that nobody knows who might put such a head into a request.
    head = name.encode() + _HEAD.pack(first, body.size, batch.num_rows, zlib.crc32(body))
    return b"".join((head, _SUM.pack(zlib.crc32(head)), body))


class _Head(NamedTuple):
    """What `_HEAD` says of a batch."""

    first: int
    size: int
    rows: int
    checksum: int


@dataclass
class _Content:
    """What is found in a stream."""

    batches: list[pa.RecordBatch]
    kept: int = 0
    """Rows of these."""
    known: int = 0
    """Rows up to the last head that could be read."""
    is_cut: bool = False
    """Whether its end is missing, as of a process that was killed while it wrote."""
    is_damaged: bool = False
    """Whether anything else is wrong."""

    @property
    def lost(self) -> int:
        """Rows, at least."""
        return self.known - self.kept


def _read(file: BinaryIO, name: str) -> _Content:
    """The batches of a stream that are as they were written."""
    content, marker = _Content([]), name.encode()
    end, place = file.seek(0, os.SEEK_END), 0
    content.is_cut = end == 0
    while place < end:
        head, start = _head_at(file, marker, place)
        if head is not None and head.first >= content.known:
            content.is_damaged |= head.first > content.known
            content.known = head.first + head.rows
            batch = _batch_at(file, head)
            if batch is not None:
                content.batches.append(batch)
                content.kept += head.rows
                place = start + head.size
                continue
        ends_early = start + (head.size if head else 0) > end
        place = _find(file, marker, place + 1)
        if place < end or not ends_early:
            content.is_damaged = True
        else:
            content.is_cut = True
    return content


def _head_at(file: BinaryIO, marker: bytes, place: int) -> tuple[_Head | None, int]:
    """The head at a place, None if there is none, and where its batch would start."""
    file.seek(place)
    start = len(marker) + _HEAD.size
    found = file.read(start + _SUM.size)
    text, checksum = found[:start], found[start:]
    is_head = text.startswith(marker) and checksum == _SUM.pack(zlib.crc32(text))
    head = _Head(*_HEAD.unpack(text[len(marker) :])) if is_head else None
    return head, place + start + _SUM.size


def _batch_at(file: BinaryIO, head: _Head) -> pa.RecordBatch | None:
    """The batch after a head; None if it is not as it was."""
    body = file.read(head.size)
    if len(body) != head.size or zlib.crc32(body) != head.checksum:
        return None
    with pa.ipc.open_stream(body) as reader:
        return reader.read_next_batch()


def _find(file: BinaryIO, marker: bytes, place: int) -> int:
    """Where the next head may be; else the end."""
    while True:
        file.seek(place)
        chunk = file.read(_CHUNK)
        if (found := chunk.find(marker)) >= 0:
            return place + found
        if len(chunk) < len(marker):
            return place + len(chunk)
        place += len(chunk) - len(marker) + 1


class Room(NamedTuple):
    """What `make_room` has done."""

    deleted: int
    """Files."""
    size: int
    """Bytes of what is left."""
    error: OSError | None
    """Why a file could not be deleted, if one could not."""


class _Deletable(NamedTuple):
    """A file that may be deleted, in the order in which they go."""

    day: str
    """Empty for damaged streams, which go first."""
    name: str
    path: Path
    size: int


def make_room(folder: Path, most_bytes: int) -> Room:
    """Deletes damaged streams, then the oldest days, or the oldest files of a single one.

    A span is never left with a part of its rows, as long as there is another one to delete.
    """
    begun = [path for path in (folder / _UNFINISHED).glob("*") if _is_unfinished(path)]
    whole = [path for path in folder.glob("*/*.parquet") if _is_whole(path)]
    sizes = {path: _size(path) for path in (*begun, *whole)}
    total, deleted, error = sum(sizes.values()), 0, None
    left = sorted(_deletable(path, size) for path, size in sizes.items() if _may_go(path))
    while left and total > most_bytes:
        oldest, newest = left[0], left[-1]
        by_day = oldest.day and oldest.day != newest.day
        going = [one for one in left if one.day == oldest.day] if by_day else [oldest]
        del left[: len(going)]
        for one in going:
            try:
                if _delete(one.path):
                    total -= one.size
                    deleted += 1
            except OSError as failure:
                error = failure
    return Room(deleted, total, error)


def _deletable(path: Path, size: int) -> _Deletable:
    day, name = path.parent.name, path.name
    if path.parent.name == _UNFINISHED:
        day, _, name = path.name.partition("T")
    return _Deletable("" if path.suffix == _DAMAGED else day, name, path, size)


def _may_go(path: Path) -> bool:
    return path.suffix not in (_NEW, _PARQUET) or path.parent.name != _UNFINISHED


def _delete(path: Path) -> bool:
    """Deletes one of the files, unless a process is at work on it; says whether it is gone."""
    if path.parent.name == _UNFINISHED:
        return _delete_left(path)
    path.unlink(missing_ok=True)
    with suppress(OSError):  # It holds something else, or another worker was faster.
        path.parent.rmdir()
    return True


def _delete_left(path: Path, older_than: float = 0.0) -> bool:
    with _alone_with(path) as file:
        if file is None:
            return not path.exists()
        if time.time() - os.fstat(file.fileno()).st_mtime < older_than:
            return False
        path.unlink(missing_ok=True)
    return True


def _size(path: Path) -> int:
    """In bytes; 0 if another worker has taken it away."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_whole(path: Path) -> bool:
    return bool(_DAY.fullmatch(path.parent.name) and _FILE.fullmatch(path.stem))


def _is_unfinished(path: Path) -> bool:
    day, _, name = path.stem.partition("T")
    is_ours = path.suffix in (*_STREAMS, _NEW, _DAMAGED, _PARQUET)
    return bool(is_ours and _DAY.fullmatch(day) and _FILE.fullmatch(name) and path.is_file())


def now_utc() -> datetime:
    """The time that names files and folders."""
    return datetime.now(UTC)
