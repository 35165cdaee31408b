"""What a server tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server."""

    def __init__(
        self,
        waiting_rows: Callable[[], float],
        version: Callable[[], float],
        failures: Callable[[], float],
    ) -> None:
        """Args:
        waiting_rows: how many wait now.
        version: that answers now, 0 for none.
        failures: versions that could not be loaded.
        """
        self.registry = CollectorRegistry()
        self.seconds = self._histogram(
            "request_seconds", "Of requests.", _SECONDS, "route", "status"
        )
        self.batch_rows = self._histogram("batch_rows", "Rows asked together.", _ROWS)
        self._predictions = Counter(
            "scopeline_predictions",
            "Rows by the class that was predicted.",
            ["label"],
            registry=self.registry,
        )
        gauges = {
            "queue_rows": ("Rows that wait.", waiting_rows),
            "serving_version": ("That answers.", version),
            "failed_versions": ("That could not be loaded.", failures),
        }
        for name, (text, read) in gauges.items():
            Gauge(f"scopeline_{name}", text, registry=self.registry).set_function(read)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"scopeline_{name}", text, labels, registry=self.registry, buckets=buckets)

    def count(self, answers: dict[str, np.ndarray]) -> None:
        """Counts the predictions of a request, by class; of numbers all together."""
        classes = answers.get("class")
        if classes is None:
            self._predictions.labels("").inc(len(next(iter(answers.values()))))
            return
        values, counts = np.unique(classes.astype(bytes), return_counts=True)
        for value, number in zip(values.tolist(), counts.tolist(), strict=True):
            self._predictions.labels(value.decode(errors="replace")).inc(number)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)
