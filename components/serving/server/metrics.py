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
        version: returns the served version, 0 for none.
        failures: returns the number of versions that could not be loaded.
        is_shared: whether metrics are summed over workers, by files in the folder that
          PROMETHEUS_MULTIPROC_DIR named when prometheus_client was imported.
        """
        self._is_shared = is_shared
        self.registry = CollectorRegistry()
        self._seconds = self._histogram(
            "request_seconds", "Latency of requests.", _SECONDS, "route", "status"
        )
        self._known: dict[tuple[str, int], Histogram] = {}
        """A cache of histograms: finding one by its labels takes as long as recording a request."""
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
        self._said: dict[str, float] = {}
        """The time of the last log line about each column."""
        # Workers are combined by the sum of rows, the oldest version and the most failures.
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
        found = self._known.get((route, status))
        if found is None:
            found = self._known[route, status] = self._seconds.labels(route, str(status))
        found.observe(seconds)

    def count(self, answers: dict[str, np.ndarray]) -> None:
        """Counts predictions by class; those of numbers share one label."""
        classes = answers.get("class")
        if classes is None:
            self._predictions.labels("").inc(len(next(iter(answers.values()))))
            return
        for value, number in Counts(classes.tolist()).items():
            self._predictions.labels(value.decode(errors="replace")).inc(number)

    def count_unreadable(self, unreadable: Sequence[UnreadableValues]) -> None:
        """Counts texts that the model cannot parse; logs a line per column at most once a minute.

        The log does not show the texts, as a client may have sent anything.
        """
        for one in unreadable:
            self._unreadable.labels(one.column).inc(one.count)
            if time.monotonic() - self._said.get(one.column, -math.inf) >= _PAUSE_SECONDS:
                self._said[one.column] = time.monotonic()
                logger.warning(
                    "column %r: %d values of these requests cannot be parsed and count as missing;"
                    " expected %s",
                    one.column,
                    one.count,
                    one.right,
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
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)
