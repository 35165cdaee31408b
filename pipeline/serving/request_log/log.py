"""The log of a server: requests wait in a bounded queue, and a thread of its own writes them."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
from prometheus_client import CollectorRegistry, Counter

from pipeline.serving.request_log.files import UnfinishedFile, finish_left, make_room, now_utc
from pipeline.serving.request_log.gathering import Answered, GatheredRows
from pipeline.serving.request_log.options import LogOptions
from pipeline.serving.request_log.rows import to_rows

QUEUE_BYTES = 64 << 20
"""That may wait; what comes then is not written down, as answers do not wait for a disk."""
_PAUSE_SECONDS = 0.5
"""How often what waits is written: no request has to wake the thread."""
_LOOK_SECONDS = 10.0
"""How often the size of the log is looked at, and what others left."""
_END_SECONDS = 20.0
_HASHES = 2.0**64

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
        self._said = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="request log", daemon=True)
        self._rows = Counter(
            "scopeline_request_log_rows",
            "Rows of the request log: written, lost as too many waited, or lost to the disk.",
            ["outcome"],
            registry=registry,
        )
        self._deleted = Counter(
            "scopeline_request_log_deleted_files",
            "Files of the request log that went, as it had its limit.",
            registry=registry,
        )
        for outcome in ("written", "queue_full", "disk_failed"):
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
            self._waiting += size
            if is_new:
                self._queue.append(GatheredRows(chosen.model, chosen.signature))
            self._queue[-1].add(chosen, size)

    def _work(self) -> None:
        looked = 0.0
        while True:
            is_last = self._stop.wait(_PAUSE_SECONDS)
            self._write_waiting()
            if is_last or self._is_over():
                self._try(self._finish)
            if is_last or time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                self._try(self._look)
            if is_last:
                return

    def _try(self, step: Callable[[], None]) -> bool:
        """Whatever happens to the log, the server goes on; what is wrong is said once.

        Returns:
          Whether it went well.
        """
        try:
            step()
        except OSError as error:
            said = f"{error.filename or self._options.folder}: {error.strerror or error}"
            if said != self._said:
                logger.error("the request log cannot be written: %s", said)
            self._said = said
            return False
        except Exception:
            logger.exception("the request log failed")
            return False
        return True

    def _write_waiting(self) -> None:
        while self._queue:
            with self._gathering:
                gathered = self._queue.popleft()
                self._waiting -= gathered.size
            self._write(gathered)

    def _write(self, gathered: GatheredRows) -> None:
        is_written = self._try(lambda: self._append(gathered))
        outcome = "written" if is_written else "disk_failed"
        self._rows.labels(outcome).inc(gathered.rows)
        if is_written and self._said:
            logger.info("the request log is written again")
            self._said = ""

    def _append(self, gathered: GatheredRows) -> None:
        batch = to_rows(gathered, self._options.dropped)
        self._file_for(batch.schema).append(batch)

    def _file_for(self, schema: pa.Schema) -> UnfinishedFile:
        if self._file is not None and (
            self._is_over() or not self._file.schema.equals(schema, check_metadata=True)
        ):
            self._finish()
        if self._file is None:
            self._file = UnfinishedFile(self._options.folder, schema, self._clock())
        return self._file

    def _is_over(self) -> bool:
        """Whether the file that is being written is full, or its hour has passed."""
        if self._file is None:
            return False
        return self._file.is_full or self._file.hour != self._clock().strftime("%Y-%m-%dT%H")

    def _finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.finish()

    def _look(self) -> None:
        finish_left(self._options.folder)
        if deleted := make_room(self._options.folder, self._options.most_bytes):
            self._deleted.inc(deleted)
            logger.info("the request log had its limit: its %d oldest files went", deleted)


def is_sampled(name: str, share: float) -> bool:
    """Whether the request of an id is written down: the same for each server that it comes to."""
    if share >= 1:
        return True
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * _HASHES
