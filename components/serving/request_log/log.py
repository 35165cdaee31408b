"""The log of a server: requests wait in a bounded queue, and a thread of its own writes them."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
from prometheus_client import CollectorRegistry, Counter

from components.serving.failing import Failing
from components.serving.request_log.files import (
    MOST_BYTES,
    Loss,
    UnfinishedFile,
    finish_left,
    make_room,
    now_utc,
    unfinished,
)
from components.serving.request_log.rows import Answered, to_rows
from components.serving.settings import LogOptions

QUEUE_BYTES = 64 << 20
"""That may wait; what comes then is not written down, as answers do not wait for a disk."""
_TOGETHER = 512
"""Rows of an array: the thread that writes them has Python's lock for as long as they take."""
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
    """Writes a share of the requests down, never in the way of an answer.

    Whatever happens to the log, the server goes on.
    """

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
        self._queueing = threading.Lock()
        self._queue: deque[Answered] = deque()
        self._waiting = 0
        """Bytes in the queue."""
        self._file: UnfinishedFile | None = None
        self._most_of_file = min(MOST_BYTES, options.most_bytes // _FILES_OF_LIMIT)
        self._looked, self._since = -math.inf, 0
        """When the size of the log was looked at, and the bytes that were written since then."""
        self._failing = defaultdict[str, Failing](
            lambda: Failing(logger, "the request log cannot be written")
        )
        """By the step that may fail."""
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
        with self._failing["note"].survived():
            chosen = answered.only(lambda name: is_sampled(name, self._options.sample))
            if not chosen.requests:
                return
            chosen = chosen.alone()  # As a part of a large request it may be the last that waits.
            with self._queueing:
                has_room = self._waiting + chosen.size <= QUEUE_BYTES
                if has_room:
                    self._queue.append(chosen)
                    self._waiting += chosen.size
            if not has_room:
                self._rows.labels("queue_full").inc(chosen.rows)

    def _work(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stop.wait(_PAUSE_SECONDS)
            with self._failing["turn"].survived():
                self._write_waiting()
                if is_last or self._is_over():
                    self._finish()
                self._look(is_last)

    def _write_waiting(self) -> None:
        while self._queue:
            together, outcome = self._take_next(), "disk_failed"
            with self._failing["write"].survived():
                self._append(to_rows(together, self._options.dropped))
                outcome = "written"
            self._rows.labels(outcome).inc(sum(one.rows for one in together))
            # Under load there is always more that waits.
            self._look()

    def _take_next(self) -> list[Answered]:
        """What is written next, of which the rows are like each other."""
        found, rows = [self._queue.popleft()], 0
        while self._queue and self._queue[0].is_like(found[0]):
            rows += found[-1].rows
            if rows + self._queue[0].rows > _TOGETHER:
                break
            found.append(self._queue.popleft())
        with self._queueing:
            self._waiting -= sum(one.size for one in found)
        return found

    def _append(self, batch: pa.RecordBatch) -> None:
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
        """Returns whether the file that is being written is full, or its hour has passed."""
        if self._file is None:
            return False
        return self._file.is_full or self._file.hour != self._clock().strftime("%Y-%m-%dT%H")

    def _finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with self._failing["finish"].survived():
                self._tell(file.finish())

    def _look(self, is_last: bool = False) -> None:
        """Keeps the limit, and finishes what others left, each by itself; if it is time to."""
        is_time = time.monotonic() - self._looked > _LOOK_SECONDS
        if not (is_last or is_time or self._since > self._most_of_file):
            return
        self._looked, self._since = time.monotonic(), 0
        self._make_room()
        for path in unfinished(self._options.folder):
            with self._failing[path.name].survived():
                self._tell(finish_left(path, self._options.folder))
        self._make_room()

    def _make_room(self) -> None:
        with self._failing["room"].survived():
            # As much is left as is written until the next look, and as a file that is finished.
            most = self._options.most_bytes - 3 * self._most_of_file
            room = make_room(self._options.folder, most)
            if room.deleted:
                self._deleted.inc(room.deleted)
                logger.info("the request log had its limit: its %d oldest files went", room.deleted)
            if room.error is not None:
                raise room.error

    def _tell(self, loss: Loss | None) -> None:
        """Says what of a stream could not be read."""
        if loss is not None:
            self._rows.labels("damaged").inc(loss.lost)
            logger.warning(
                "the request log: %s %s: %d rows of it are kept, and at least %d are lost%s",
                loss.stream,
                "is damaged" if loss.is_aside else "was cut off at its end",
                loss.kept,
                loss.lost,
                "; it stays there until there is no room" if loss.is_aside else "",
            )


def is_sampled(name: str, share: float) -> bool:
    """Returns whether the request of an id is written down: the same for each server that it
    comes to.
    """
    if share >= 1:
        return True
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * _HASHES
