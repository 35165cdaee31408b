"""Evaluations of very many slices, batches and files: what they come to, and by how much work."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_batched import make_config, make_rows
from test_resampling import as_batch

from components.evaluator.batched import accumulator, slices
from components.evaluator.batched.accumulator import Accumulator, Grouper
from components.evaluator.batched.computations import is_plot
from components.evaluator.batched.pipeline import MergeAccumulators

CONFIG = make_config("binary", is_weighted=True, slices=[["zone"]])
ROWS = make_rows("binary")


def zone_column(zones: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch({"zone": pa.array(zones[:, None].tolist(), pa.large_list(pa.int64()))})


def tallied(file: int, batches: int) -> Accumulator:
    """Batches of 50 rows, of which most are the first of their slice."""
    random, adding = np.random.default_rng(file), Accumulator(CONFIG, [("zone",)], Grouper(file))
    for _ in range(batches):
        zones = zone_column(random.integers(0, 9000, 300))
        adding.add(as_batch(ROWS, zones, np.arange(50)))
    return adding


def add_up(accumulators: Iterable[Accumulator]) -> Accumulator:
    """As they are sent from one process to another."""
    adding = MergeAccumulators()
    totals = adding.create_accumulator()
    for one in accumulators:
        totals = adding.add_input(totals, pickle.loads(pickle.dumps(one)))  # noqa: S301
    found = adding.extract_output(adding.merge_accumulators([totals]))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "work",
    [
        lambda number: pickle.dumps(tallied(0, number)),
        lambda number: add_up(tallied(file, 1) for file in range(number)),
    ],
    ids=["batches", "files"],
)
def test_twice_as_much_data_is_twice_the_work(
    work: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the values that are sorted: four times as many if each batch went through all others."""
    monkeypatch.setattr(accumulator, "MAX_WAITING_PREDICTIONS", 1)
    unique, values = np.unique, 0

    def counted(array: Any, **options: Any) -> Any:
        nonlocal values
        values += len(array)
        return unique(array, **options)

    monkeypatch.setattr(np, "unique", counted)
    sizes = []
    for number in (40, 80):
        values = 0
        work(number)
        sizes.append(values)
    assert sizes[1] < 2.8 * sizes[0]


def test_metrics_are_the_same_however_rows_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """By batches of many sizes, at once or together, in one file or in several."""
    zones = zone_column(np.random.default_rng(1).integers(0, 40, 300))

    def accumulator_of(sizes: list[int], file: int = 0, first: int = 0) -> Accumulator:
        adding = Accumulator(CONFIG, [("zone",)], Grouper(file))
        for size in sizes:
            adding.add(as_batch(ROWS, zones, np.arange(first, first + size)))
            first += size
        return adding

    whole = metrics_of(accumulator_of([300]))
    assert len(whole) == 41
    assert_alike(metrics_of(accumulator_of([1, 99, 7, 193])), whole)
    monkeypatch.setattr(accumulator, "MAX_WAITING_PREDICTIONS", 1)
    assert_alike(metrics_of(accumulator_of([20] * 15)), whole)
    found = add_up(accumulator_of([20] * 5, file, 100 * file) for file in range(3))
    assert_alike(metrics_of(found), whole)


def metrics_of(found: Accumulator) -> dict[Any, dict[Any, float]]:
    results = found.results(found.reported_slices())
    return {
        key: {name: float(value) for name, value in metrics.items() if not is_plot(name)}
        for key, metrics in results
    }


def assert_alike(found: dict[Any, dict[Any, float]], expected: dict[Any, dict[Any, float]]) -> None:
    assert set(found) == set(expected)
    within = partial(pytest.approx, rel=1e-12, nan_ok=True)
    assert all(found[key] == within(metrics) for key, metrics in expected.items())


def test_of_too_many_slices_none_is_measured_nor_kept(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert len([note for note in found.notes() if "more than 20 slices by" in note]) == 2
    assert len(metrics_of(add_up([accumulator_of(0, few), accumulator_of(1, few)]))) == 2 + 2 * 15


def counts_of(found: Accumulator) -> list[dict[str, float]]:
    return [{key.name: value for key, value in one.items()} for one in metrics_of(found).values()]
