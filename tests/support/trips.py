"""Generated taxi trips: columns that two samples of the same data seem to differ in by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import single_values

AREAS = [f"area {number}" for number in range(200)]


def trips(seed: int, rows: int, **changed: Any) -> pa.RecordBatch:
    """Fares with a heavy tail, tips of which most are 0, and names, some of them rare."""
    random = np.random.default_rng(seed)
    fare = random.lognormal(2.3, 0.8, rows)
    columns = {
        # One in some hundred is an outlier.
        "fare": np.where(random.random(rows) < 0.003, fare * 100, fare).astype(np.float32),
        "tip": np.where(random.random(rows) < 0.6, 0, random.gamma(2, 2, rows)),
        "seats": random.choice([1, 2, 4, 6], rows, p=[0.7, 0.2, 0.06, 0.04]),
        "company": random.choice(["Ace", "Best", "Café"], rows, p=[0.5, 0.3, 0.2]),
        "area": random.choice(AREAS, rows, p=_falling(200)),
        # A number that is a name: a third have one, the others any.
        "zone": np.where(random.random(rows) < 0.35, 8, random.integers(1, 78, rows)),
        "is_cash": random.integers(0, 2, rows),
        # Nearly always missing, so that a window may have none.
        "rare": random.integers(0, 9, rows),
    }
    for name, change in changed.items():
        columns[name] = change(columns[name])
    missing, gone = random.random(rows) < 0.05, random.random(rows) < 0.999
    return pa.RecordBatch.from_pydict(
        {
            name: single_values(_array(values, missing if name != "rare" else gone))
            for name, values in columns.items()
        }
    )


def _falling(places: int) -> np.ndarray:
    weights = 1 / np.arange(1, places + 1)
    return weights / weights.sum()


def _array(values: np.ndarray, missing: np.ndarray) -> pa.Array:
    if values.dtype.kind == "U":
        return pa.array([v.encode() for v in values.tolist()], pa.binary(), mask=missing)
    kind = np.int64 if values.dtype.kind == "i" else np.float32
    return pa.array(values.astype(kind), mask=missing)
