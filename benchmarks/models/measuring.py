"""The measurement of a model: its predictions, the time of its training, its size and its speed.

Models in other environments are measured with it too; it needs NumPy, and pandas for `read_frame`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.job import Job

ONE_ROW_CALLS, ONE_ROW_SECONDS = 100, 2.0
"""The most calls with one row, and the seconds after which no further call begins."""
BLOCK_ROWS, BLOCK_CALLS, BLOCK_SECONDS = 4096, 10, 2.0
"""The rows of a block, the most calls with a block, and the seconds as above."""


@dataclass(frozen=True)
class Trained:
    """A trained model in memory."""

    rows: Any
    """The test rows, in the form that the model takes."""
    take: Callable[[Any, np.ndarray], Any]
    """Returns the rows with the given indices, in the same form."""
    predict: Callable[[Any], np.ndarray]
    """Returns [rows] numbers, or [rows, classes] scores."""
    megabytes: float
    """The size of the saved model."""
    classes: Sequence[str] = ()
    """The classes in the order of the scores; empty for numbers."""
    train_seconds: float | None = None
    """The seconds of the training, if it is only a part of the whole."""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """The measurements of a model."""

    predictions: list[Any]
    classes: list[str]
    train_seconds: float
    total_seconds: float
    """The seconds from the files to the saved model."""
    megabytes: float
    latency_ms: float
    """The median time of a call with one row, in milliseconds."""
    rows_per_second: float
    """The rows per second in calls with `BLOCK_ROWS` rows."""
    notes: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Writes the outcome as JSON."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Outcome:
        """Reads an outcome that `save` has written."""
        return cls(**json.loads(path.read_text()))


def measure(job: Job, train: Callable[[Job], Trained]) -> Outcome:
    """Trains a model and measures it."""
    began = time.perf_counter()
    trained = train(job)
    total = time.perf_counter() - began
    predicted = np.asarray(trained.predict(trained.rows), np.float64)
    count = len(predicted)
    one = [trained.take(trained.rows, np.array([i % count])) for i in range(ONE_ROW_CALLS)]
    block = trained.take(trained.rows, np.resize(np.arange(count), BLOCK_ROWS))
    return Outcome(
        predictions=predicted.tolist(),
        classes=list(map(str, trained.classes)),
        train_seconds=total if trained.train_seconds is None else trained.train_seconds,
        total_seconds=total,
        megabytes=trained.megabytes,
        latency_ms=1000 * _median_seconds(trained.predict, one, ONE_ROW_SECONDS),
        rows_per_second=BLOCK_ROWS
        / _median_seconds(trained.predict, [block] * BLOCK_CALLS, BLOCK_SECONDS),
        notes=list(trained.notes),
    )


def read_frame(job: Job, path: Path) -> Any:
    """Returns the rows of a file as a DataFrame; classes are strings."""
    import pandas as pd

    types = None if job.is_regression else {job.label: str}
    return pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])


def main(train: Callable[[Job], Trained]) -> None:
    """Measures a model; the arguments of the command are the files of a job and of its outcome."""
    job_file, outcome_file = map(Path, sys.argv[1:])
    measure(Job.load(job_file), train).save(outcome_file)


def _median_seconds(predict: Callable[[Any], Any], calls: Sequence[Any], limit: float) -> float:
    """Returns the median seconds of the calls, after one that is not counted."""
    predict(calls[0])
    seconds: list[float] = []
    for rows in calls:
        began = time.perf_counter()
        predict(rows)
        seconds.append(time.perf_counter() - began)
        if sum(seconds) > limit:
            break
    return statistics.median(seconds)
