"""Evaluations of very many slices, batches and files."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.evaluator.batched import accumulator, slices
from components.evaluator.batched.accumulator import Accumulator, Grouper
from components.evaluator.batched.computations import is_plot
from components.evaluator.batched.pipeline import MergeAccumulators
from tests.support.as_tfma import as_batch, make_config, make_rows

CONFIG = make_config("binary", is_weighted=True, slices=[["zone"]])
ROWS = make_rows("binary")


def zone_column(zones: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch({"zone": pa.array(zones[:, None].tolist(), pa.large_list(pa.int64()))})


def add_up(accumulators: Iterable[Accumulator]) -> Accumulator:
    """As they are sent from one process to another."""
    adding = MergeAccumulators()
    totals = adding.create_accumulator()
    for one in accumulators:
        totals = adding.add_input(totals, pickle.loads(pickle.dumps(one)))  # noqa: S301
    found = adding.extract_output(adding.merge_accumulators([totals]))
    assert found is not None
    return found


def metrics_of(found: Accumulator) -> dict[Any, dict[Any, float]]:
    results = found.results(found.reported_slices())
    return {
        key: {name: float(value) for name, value in metrics.items() if not is_plot(name)}
        for key, metrics in results
    }


def test_columns_of_too_many_slices_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one file, or in several together; those of another kind are as they were."""
    for module in (slices, accumulator):
        monkeypatch.setattr(module, "MAX_TRACKED_SLICES", 20)
    plans = pa.array([[b"gold"]] * 300, pa.large_list(pa.binary()))

    def accumulator_of(file: int, zones: np.ndarray) -> Accumulator:
        adding = Accumulator(CONFIG, [("zone",), ("plan",), ("plan", "zone")], Grouper(file))
        columns = zone_column(zones).append_column("plan", plans)
        for first in range(0, 300, 50):
            adding.add(as_batch(ROWS, columns, np.arange(first, first + 50)))
        return adding

    few, other, many = np.arange(300) % 15, np.arange(300) % 15 + 10, np.arange(300)
    crowded = {("zone",), ("plan", "zone")}
    for files in ([few, other], [few, many, few], [many]):
        found = add_up(accumulator_of(number, zones) for number, zones in enumerate(files))
        assert found.slicer.crowded == crowded
        assert len(found.slicer.keys) <= 2 + 2 * 20
        assert set(metrics_of(found)) == {(), (("plan", "gold"),)}
        rows = 300 * len(files)
        assert all(m["example_count"] == rows for m in counts_of(found))
        assert len([note for note in found.notes() if "20 slices" in note]) == 2
    assert len(metrics_of(add_up([accumulator_of(0, few), accumulator_of(1, few)]))) == 2 + 2 * 15


def counts_of(found: Accumulator) -> list[dict[str, float]]:
    return [{key.name: value for key, value in one.items()} for one in metrics_of(found).values()]
