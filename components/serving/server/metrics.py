"""The Prometheus metrics of a server."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter as Counts
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from components.serving.requests import UnreadableValues

CONTENT_TYPE = CONTENT_TYPE_LATEST
CLIENT_GONE = 499
"""The status of a request whose client disconnected before the response, as in nginx."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_Mode = Literal["livesum", "livemin", "livemax"]
_PAUSE_SECONDS = 60.0
"""The seconds between two log lines about unreadable values of a column."""
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

logger = logging.getLogger(__name__)


class Metrics:
    """The metrics of a server process, which may be one of several workers."""

    def __init__(
        self,
        waiting_rows: Callable[[], float],
        version: Callable[[], float],
        failures: Callable[[], float],
        is_shared: bool = False,
    ) -> None:
        """Args:
        waiting_rows: returns the number of rows in the queue.
        version: returns the number of the served version, or 0 if no version is served.
        failures: returns the number of versions that could not be loaded.
        is_shared: whether metrics are combined over all workers. The workers share them in files in
          the folder of PROMETHEUS_MULTIPROC_DIR, which prometheus_client reads when imported.
        """
        self._is_shared = is_shared
        self.registry = CollectorRegistry()
        self._seconds = self._histogram(
            "request_seconds", "Latency of requests.", _SECONDS, "route", "status"
        )
        self._histograms: dict[tuple[str, int], Histogram] = {}
        """A cache of histograms by route and status, as `Histogram.labels` is slow."""
        self.batch_rows = self._histogram("batch_rows", "Rows per coalesced batch.", _ROWS)
        self._predictions = Counter(
            "scopeline_predictions",
            "Rows by predicted class.",
            ["label"],
            registry=self.registry,
        )
        self._unreadable = Counter(
            "scopeline_unreadable_values",
            "Values that cannot be parsed, by column; they count as missing values.",
            ["column"],
            registry=self.registry,
        )
        self._log_times: dict[str, float] = {}
        """The time of the last log line about each column."""
        # Over all workers, the gauges show the sum of the rows, the oldest version, and the highest
        # number of failures.
        self._gauges = [
            (
                self._gauge("queue_rows", "Rows that wait for a prediction.", "livesum"),
                waiting_rows,
            ),
            (
                self._gauge("serving_version", "The version that answers requests.", "livemin"),
                version,
            ),
            (
                self._gauge("failed_versions", "Versions that cannot be loaded.", "livemax"),
                failures,
            ),
        ]

    def _gauge(self, name: str, text: str, mode: _Mode) -> Gauge:
        return Gauge(f"scopeline_{name}", text, registry=self.registry, multiprocess_mode=mode)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"scopeline_{name}", text, labels, registry=self.registry, buckets=buckets)

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Records the seconds that a request took."""
        histogram = self._histograms.get((route, status))
        if histogram is None:
            histogram = self._seconds.labels(route, str(status))
            self._histograms[route, status] = histogram
        histogram.observe(seconds)

    def count(self, answers: dict[str, np.ndarray]) -> None:
        """Counts predictions by class. Predictions of numbers have an empty label."""
        classes = answers.get("class")
        if classes is None:
            self._predictions.labels("").inc(len(next(iter(answers.values()))))
            return
        for value, number in Counts(classes.tolist()).items():
            self._predictions.labels(value.decode(errors="replace")).inc(number)

    def count_unreadable(self, unreadable: Sequence[UnreadableValues]) -> None:
        """Counts texts that the model cannot parse, and logs a line per column once a minute.

        The log line does not quote the texts, as they may be personal data or an attack.
        """
        for values in unreadable:
            column, now = values.column, time.monotonic()
            self._unreadable.labels(column).inc(values.count)
            if now - self._log_times.get(column, -math.inf) >= _PAUSE_SECONDS:
                self._log_times[column] = now
                logger.warning(
                    "column %r: %d values of these requests cannot be parsed and count as missing;"
                    " expected %s",
                    column,
                    values.count,
                    values.expected,
                )

    def refresh(self) -> None:
        """Updates the gauges, which other workers read from shared files."""
        for gauge, read in self._gauges:
            gauge.set(read())

    def text(self) -> bytes:
        """Returns all metrics in Prometheus's format."""
        self.refresh()
        if not self._is_shared:
            return generate_latest(self.registry)
        combined = CollectorRegistry()
        MultiProcessCollector(combined)
        return generate_latest(combined)
