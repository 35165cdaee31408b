"""The log of a server: requests wait in a bounded queue, and a thread of its own writes them."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
from prometheus_client import CollectorRegistry, Counter

from components.serving.request_log.files import (
    MOST_BYTES,
    Loss,
    UnfinishedFile,
    finish_left,
    make_room,
    now_utc,
    unfinished,
)
from components.serving.request_log.gathering import Answered, GatheredRows, to_rows
from components.serving.request_log.options import LogOptions

QUEUE_BYTES = 64 << 20
"""That may wait; what comes then is not written down, as answers do not wait for a disk."""
_PAUSE_SECONDS = 0.5
"""How often what waits is written: no request has to wake the thread."""
_LOOK_SECONDS = 10.0
"""How often the size of the log is looked at, and what others left."""
_END_SECONDS = 20.0
_HASHES = 2.0**64
_FILES_OF_LIMIT = 32
"""That a log has at its limit, at least: some are being written, and cannot be deleted."""

logger = logging.getLogger(__name__)


class RequestLog:
    """Writes a share of the requests down, never in the way of an answer."""

    def __init__(
        self,
        options: LogOptions,
        registry: CollectorRegistry,
        clock: Callable[[], datetime] = now_utc,
    ) -> None:
        """Writes nothing yet.

        Args:
          options: checked.
          registry: of the metrics.
          clock: names the files.
        """
        self._options, self._clock = options, clock
        self._gathering = threading.Lock()
        self._queue: deque[GatheredRows] = deque()
        self._waiting = 0
        """Bytes in the queue."""
        self._file: UnfinishedFile | None = None
        self._most_of_file = min(MOST_BYTES, options.most_bytes // _FILES_OF_LIMIT)
        self._looked, self._since = -math.inf, 0
        """When the size of the log was looked at, and the bytes that were written since then."""
        self._said: dict[str, str] = {}
        """What is wrong, by the step that failed."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="request log", daemon=True)
        self._rows = Counter(
            "scopeline_request_log_rows",
            "Rows of the request log: written, or lost to the queue, to the disk or as damaged.",
            ["outcome"],
            registry=registry,
        )
        self._deleted = Counter(
            "scopeline_request_log_deleted_files",
            "Files of the request log that went, as it had its limit.",
            registry=registry,
        )
        for outcome in ("written", "queue_full", "disk_failed", "damaged"):
            self._rows.labels(outcome)

    def start(self) -> None:
        """Begins to write."""
        self._thread.start()

    def close(self) -> None:
        """Writes what waits, and makes a whole file of what there is."""
        self._stop.set()
        self._thread.join(_END_SECONDS)

    def note(self, answered: Answered) -> None:
        """Has requests written down, those that are of the sample; from any thread."""
        self._try("note", partial(self._note, answered))

    def _note(self, answered: Answered) -> None:
        chosen = answered.only(lambda name: is_sampled(name, self._options.sample))
        if not chosen.requests:
            return
        size = chosen.size
        with self._gathering:
            is_new = not self._queue or not self._queue[-1].takes(chosen)
            size += chosen.size_of_arrays if is_new else 0
            if self._waiting + size > QUEUE_BYTES:
                self._rows.labels("queue_full").inc(chosen.rows)
                return
            gathered = GatheredRows(chosen.model, chosen.signature) if is_new else self._queue[-1]
            gathered.add(chosen, size)
            self._waiting += size
            if is_new:
                self._queue.append(gathered)

    def _work(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stop.wait(_PAUSE_SECONDS)
            self._try("turn", partial(self._turn, is_last))

    def _turn(self, is_last: bool) -> None:
        self._write_waiting()
        if is_last or self._is_over():
            self._finish()
        self._look(is_last)

    def _try(self, what: str, step: Callable[[], None]) -> bool:
        """Whatever happens to the log, the server goes on; what is wrong is said once.

        Returns:
          Whether it went well.
        """
        try:
            step()
        except Exception as error:
            said, is_expected = repr(error), isinstance(error, OSError)
            if isinstance(error, OSError):
                said = f"{error.filename or self._options.folder}: {error.strerror or error}"
            if self._said.get(what) != said:
                logger.error(
                    "the request log cannot be written: %s", said, exc_info=not is_expected
                )
            self._said[what] = said
            return False
        if self._said.pop(what, ""):
            logger.info("the request log is written again")
        return True

    def _write_waiting(self) -> None:
        while self._queue:
            with self._gathering:
                gathered = self._queue.popleft()
                self._waiting -= gathered.size
            is_written = self._try("write", partial(self._append, gathered))
            self._rows.labels("written" if is_written else "disk_failed").inc(gathered.rows)
            # Under load there is always more that waits.
            self._look()

    def _append(self, gathered: GatheredRows) -> None:
        batch = to_rows(gathered, self._options.dropped)
        file = self._file_for(batch.schema)
        before = file.size
        file.append(batch)
        self._since += file.size - before

    def _file_for(self, schema: pa.Schema) -> UnfinishedFile:
        if self._file is not None and (
            self._is_over() or not self._file.schema.equals(schema, check_metadata=True)
        ):
            self._finish()
        if self._file is None:
            self._file = UnfinishedFile(
                self._options.folder, schema, self._clock(), self._most_of_file
            )
        return self._file

    def _is_over(self) -> bool:
        """Whether the file that is being written is full, or its hour has passed."""
        if self._file is None:
            return False
        return self._file.is_full or self._file.hour != self._clock().strftime("%Y-%m-%dT%H")

    def _finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._try("finish", lambda: self._tell(file.finish()))

    def _look(self, is_last: bool = False) -> None:
        """Keeps the limit, and finishes what others left, each by itself; if it is time to."""
        is_time = time.monotonic() - self._looked > _LOOK_SECONDS
        if not (is_last or is_time or self._since > self._most_of_file):
            return
        self._looked, self._since = time.monotonic(), 0
        self._try("room", self._make_room)
        for path in unfinished(self._options.folder):
            self._try(path.name, partial(self._finish_left, path))
        self._try("room", self._make_room)

    def _finish_left(self, path: Path) -> None:
        self._tell(finish_left(path, self._options.folder))

    def _make_room(self) -> None:
        # As much is left as is written until the next look, and as a file takes that is finished.
        most = self._options.most_bytes - 3 * self._most_of_file
        room = make_room(self._options.folder, most)
        if room.size > most and self._file is not None:
            self._finish()
            more = make_room(self._options.folder, most)
            room = more._replace(deleted=room.deleted + more.deleted)
        if room.deleted:
            self._deleted.inc(room.deleted)
            logger.info("the request log had its limit: its %d oldest files went", room.deleted)
        if room.error is not None:
            raise room.error

    def _tell(self, loss: Loss | None) -> None:
        """Says what of a stream could not be read."""
        if loss is None:
            return
        self._rows.labels("damaged").inc(loss.lost)
        logger.warning(
            "the request log: %s %s, %d rows of it are kept, and at least %d are lost%s",
            loss.stream.name,
            "is damaged" if loss.is_aside else "was cut off at its end",
            loss.kept,
            loss.lost,
            "; it stays there until there is no room" if loss.is_aside else "",
        )


def is_sampled(name: str, share: float) -> bool:
    """Whether the request of an id is written down: the same for each server that it comes to."""
    if share >= 1:
        return True
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * _HASHES
