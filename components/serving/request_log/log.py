"""The request log of a server: requests enter a bounded queue, and a thread writes them."""

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

from components.serving.failure_log import FailureLog
from components.serving.request_log.files import (
    MOST_BYTES,
    RowLoss,
    UnfinishedFile,
    finish_abandoned,
    make_room,
    now_utc,
    unfinished_streams,
)
from components.serving.request_log.rows import AnsweredBatch, to_rows
from components.serving.settings import LogOptions

QUEUE_BYTES = 64 << 20
"""The size limit of the queue; beyond it requests are not logged, as responses do not wait for a
disk."""
_WRITE_ROWS = 512
"""The most rows that are written together: the thread holds Python's lock meanwhile."""
_PAUSE_SECONDS = 0.5
"""The interval of writing the queue, so that no request has to wake the thread."""
_CHECK_SECONDS = 10.0
"""The interval of checking the size of the log and the abandoned streams."""
_END_SECONDS = 20.0
_HASHES = 2.0**64
_FILES_OF_LIMIT = 32
"""The least number of files of a log at its limit, as files in progress cannot be deleted."""

logger = logging.getLogger(__name__)


class RequestLog:
    """A log of a share of the requests, which never delays a response.

    Errors of the log do not affect the server.
    """

    def __init__(
        self,
        options: LogOptions,
        registry: CollectorRegistry,
        clock: Callable[[], datetime] = now_utc,
    ) -> None:
        """Creates the log; the thread is started later.

        Args:
          options: the checked options.
          registry: the registry of the metrics.
          clock: returns the time from which files are named.
        """
        self._options, self._clock = options, clock
        self._queueing = threading.Lock()
        self._queue: deque[AnsweredBatch] = deque()
        self._waiting = 0
        """The number of bytes in the queue."""
        self._file: UnfinishedFile | None = None
        self._max_file_bytes = min(MOST_BYTES, options.most_bytes // _FILES_OF_LIMIT)
        self._checked_at, self._since = -math.inf, 0
        """The time of the last size check, and the bytes written since then."""
        self._failure_logs = defaultdict[str, FailureLog](
            lambda: FailureLog(logger, "the request log cannot be written")
        )
        """The logs of failures, by the step that may fail."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="request log", daemon=True)
        self._rows = Counter(
            "scopeline_request_log_rows",
            "Rows of the request log, written or lost (a full queue, a write error, damage).",
            ["outcome"],
            registry=registry,
        )
        self._deleted = Counter(
            "scopeline_request_log_deleted_files",
            "Files of the request log that were deleted to keep its size limit.",
            registry=registry,
        )
        for outcome in ("written", "queue_full", "disk_failed", "damaged"):
            self._rows.labels(outcome)

    def start(self) -> None:
        """Starts the thread that writes."""
        self._thread.start()

    def close(self) -> None:
        """Writes the queue, and converts the stream to a Parquet file."""
        self._stop.set()
        self._thread.join(_END_SECONDS)

    def note(self, answered: AnsweredBatch) -> None:
        """Queues the requests that belong to the sample; may be called from any thread."""
        with self._failure_logs["note"].suppressed():
            chosen = answered.select(lambda name: is_sampled(name, self._options.sample))
            if not chosen.requests:
                return
            # A slice would keep the arrays of the whole batch in memory.
            chosen = chosen.copy_views()
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
            with self._failure_logs["turn"].suppressed():
                self._write_waiting()
                if is_last or self._is_over():
                    self._finish()
                self._maintain(is_last)

    def _write_waiting(self) -> None:
        while self._queue:
            batches, outcome = self._take_next(), "disk_failed"
            with self._failure_logs["write"].suppressed():
                self._append(to_rows(batches, self._options.dropped))
                outcome = "written"
            self._rows.labels(outcome).inc(sum(one.rows for one in batches))
            # Under load the queue may never become empty.
            self._maintain()

    def _take_next(self) -> list[AnsweredBatch]:
        """Removes and returns the next requests of the queue that share version and signature."""
        found, rows = [self._queue.popleft()], 0
        while self._queue and self._queue[0].has_same_signature(found[0]):
            rows += found[-1].rows
            if rows + self._queue[0].rows > _WRITE_ROWS:
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
                self._options.folder, schema, self._clock(), self._max_file_bytes
            )
        return self._file

    def _is_over(self) -> bool:
        """Returns whether the current file is full, or its hour has passed."""
        if self._file is None:
            return False
        return self._file.is_full or self._file.hour != self._clock().strftime("%Y-%m-%dT%H")

    def _finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with self._failure_logs["finish"].suppressed():
                self._report_loss(file.finish())

    def _maintain(self, is_last: bool = False) -> None:
        """Enforces the size limit and converts abandoned streams, if the interval has passed."""
        is_time = time.monotonic() - self._checked_at > _CHECK_SECONDS
        if not (is_last or is_time or self._since > self._max_file_bytes):
            return
        self._checked_at, self._since = time.monotonic(), 0
        self._make_room()
        for path in unfinished_streams(self._options.folder):
            with self._failure_logs[path.name].suppressed():
                self._report_loss(finish_abandoned(path, self._options.folder))
        self._make_room()

    def _make_room(self) -> None:
        with self._failure_logs["room"].suppressed():
            # Leaves room for the rows until the next check, and for a file being converted.
            most = self._options.most_bytes - 3 * self._max_file_bytes
            room = make_room(self._options.folder, most)
            if room.deleted:
                self._deleted.inc(room.deleted)
                logger.info(
                    "the request log reached its size limit: its %d oldest files were deleted",
                    room.deleted,
                )
            if room.error is not None:
                raise room.error

    def _report_loss(self, loss: RowLoss | None) -> None:
        """Reports rows that could not be read from a stream."""
        if loss is not None:
            self._rows.labels("damaged").inc(loss.lost)
            logger.warning(
                "the request log: %s %s: %d of its rows are kept, and at least %d are lost%s",
                loss.stream,
                "is damaged" if loss.is_damaged else "was truncated",
                loss.kept,
                loss.lost,
                "; the file is kept until the log reaches its size limit"
                if loss.is_damaged
                else "",
            )


def is_sampled(name: str, share: float) -> bool:
    """Returns whether the request of an id is logged; all servers decide alike."""
    if share >= 1:
        return True
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * _HASHES
