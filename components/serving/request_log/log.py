"""The request log of a server. Requests enter a queue of limited size, and a thread writes them."""

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
    MAX_BYTES,
    RowLoss,
    UnfinishedFile,
    delete_oldest,
    finish_abandoned,
    now_utc,
    unfinished_streams,
)
from components.serving.request_log.rows import AnsweredBatch, to_rows
from components.serving.settings import LogOptions

QUEUE_BYTES = 64 << 20
"""The size limit of the queue. If the queue is full, requests are not logged, as responses do not
wait for the disk."""
_WRITE_ROWS = 512
"""The most rows that are written in one step, during which the thread holds Python's lock."""
_PAUSE_SECONDS = 0.5
"""The interval at which the queue is written, so that requests do not have to wake the thread."""
_CHECK_SECONDS = 10.0
"""The interval at which the size of the log and the abandoned streams are checked."""
_END_SECONDS = 20.0
"""The seconds for which the shutdown waits for the thread."""
_HASHES = 2.0**64
"""The number of different hashes of an id."""
_MIN_FILES_AT_LIMIT = 32
"""The lowest number of files of a log at its size limit. Each file is small, as a file in progress
cannot be deleted."""

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
        """Creates the log. The thread is started later.

        Args:
          clock: returns the time, which is part of the names of files.
        """
        self._options, self._clock = options, clock
        self._lock = threading.Lock()
        """The lock of the queue and its size."""
        self._queue: deque[AnsweredBatch] = deque()
        self._queued_bytes = 0
        self._file: UnfinishedFile | None = None
        self._max_file_bytes = min(MAX_BYTES, options.max_bytes // _MIN_FILES_AT_LIMIT)
        self._last_check, self._bytes_since_check = -math.inf, 0
        self._failure_logs = defaultdict[str, FailureLog](
            lambda: FailureLog(logger, "the request log cannot be written")
        )
        """The logs of failures, by the step that failed."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="request log", daemon=True)
        self._rows = Counter(
            "scopeline_request_log_rows",
            "Rows of the request log: written, or lost to a full queue, a full disk or damage.",
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
        """Starts the thread that writes the log."""
        self._thread.start()

    def close(self) -> None:
        """Writes the queue, and converts the stream to a Parquet file."""
        self._stop.set()
        self._thread.join(_END_SECONDS)

    def note(self, batch: AnsweredBatch) -> None:
        """Queues the requests of a batch that belong to the sample. All threads may call this."""
        with self._failure_logs["note"].suppressed():
            sampled = batch.select(lambda request_id: is_sampled(request_id, self._options.sample))
            if not sampled.requests:
                return
            # A slice would keep the arrays of the whole batch in memory.
            sampled = sampled.copy_views()
            with self._lock:
                has_room = self._queued_bytes + sampled.size <= QUEUE_BYTES
                if has_room:
                    self._queue.append(sampled)
                    self._queued_bytes += sampled.size
            if not has_room:
                self._rows.labels("queue_full").inc(sampled.rows)

    def _work(self) -> None:
        """Writes the queue every half second until the log is closed."""
        is_last = False
        while not is_last:
            is_last = self._stop.wait(_PAUSE_SECONDS)
            with self._failure_logs["turn"].suppressed():
                self._write_queue()
                if is_last or self._is_file_complete():
                    self._finish()
                self._maintain(is_last)

    def _write_queue(self) -> None:
        while self._queue:
            batches, outcome = self._take_next(), "disk_failed"
            with self._failure_logs["write"].suppressed():
                self._append(to_rows(batches, self._options.dropped))
                outcome = "written"
            self._rows.labels(outcome).inc(sum(batch.rows for batch in batches))
            # The limit is enforced here too, as the queue may never become empty under load.
            self._maintain()

    def _take_next(self) -> list[AnsweredBatch]:
        """Removes and returns the next batches of the queue with the same version and signature."""
        batches, rows = [self._queue.popleft()], 0
        while self._queue and self._queue[0].has_same_signature(batches[0]):
            rows += batches[-1].rows
            if rows + self._queue[0].rows > _WRITE_ROWS:
                break
            batches.append(self._queue.popleft())
        with self._lock:
            self._queued_bytes -= sum(batch.size for batch in batches)
        return batches

    def _append(self, batch: pa.RecordBatch) -> None:
        file = self._file_for(batch.schema)
        previous_size = file.size
        file.append(batch)
        self._bytes_since_check += file.size - previous_size

    def _file_for(self, schema: pa.Schema) -> UnfinishedFile:
        if self._file is not None and (
            self._is_file_complete() or not self._file.schema.equals(schema, check_metadata=True)
        ):
            self._finish()
        if self._file is None:
            self._file = UnfinishedFile(
                self._options.folder, schema, self._clock(), self._max_file_bytes
            )
        return self._file

    def _is_file_complete(self) -> bool:
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
        """Enforces the size limit and converts abandoned streams, if a check is due."""
        is_due = time.monotonic() - self._last_check > _CHECK_SECONDS
        if not (is_last or is_due or self._bytes_since_check > self._max_file_bytes):
            return
        self._last_check, self._bytes_since_check = time.monotonic(), 0
        self._enforce_limit()
        for path in unfinished_streams(self._options.folder):
            with self._failure_logs[path.name].suppressed():
                self._report_loss(finish_abandoned(path, self._options.folder))
        self._enforce_limit()

    def _enforce_limit(self) -> None:
        with self._failure_logs["limit"].suppressed():
            # Three files of space remain for rows until the next check, and for a conversion.
            max_bytes = self._options.max_bytes - 3 * self._max_file_bytes
            result = delete_oldest(self._options.folder, max_bytes)
            if result.deleted:
                self._deleted.inc(result.deleted)
                logger.info(
                    "the request log reached its size limit: its %d oldest files were deleted",
                    result.deleted,
                )
            if result.error is not None:
                raise result.error

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
                "; the damaged file is kept until the log reaches its size limit"
                if loss.is_damaged
                else "",
            )


def is_sampled(request_id: str, share: float) -> bool:
    """Returns whether the request with an id is logged. The result is the same on all servers."""
    if share >= 1:
        return True
    digest = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * _HASHES
