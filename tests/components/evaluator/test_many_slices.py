"""Evaluations of very many slices, batches and files: what they come to, and by how much work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_batched import make_config, make_rows
from test_resampling import as_answers

from components.evaluator.batched.measuring import is_plot
from components.evaluator.batched.pipeline import AddUp
from components.evaluator.batched.resampling import tally
from components.evaluator.batched.resampling.groups import Grouper
from components.evaluator.batched.resampling.tally import Tally, TallyFound, computations_of

CONFIG = make_config("binary", is_weighted=True, slices=[["zone"]])
ROWS = make_rows("binary")


def zone_column(zones: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch({"zone": pa.array(zones[:, None].tolist(), pa.large_list(pa.int64()))})


def tallied(file: int, batches: int) -> Tally:
    """Batches of 50 rows, of which most are the first of their slice."""
    random, adding = np.random.default_rng(file), Tally.start(CONFIG, [("zone",)], Grouper(file))
    for _ in range(batches):
        zones = zone_column(random.integers(0, 9000, 300))
        adding.add(as_answers(ROWS, zones, np.arange(50)))
    return adding


def add_up(files: Iterable[int]) -> TallyFound:
    adding = AddUp(CONFIG)
    totals = adding.create_accumulator()
    for file in files:
        totals = adding.add_input(totals, tallied(file, 1).found())
    found = adding.extract_output(adding.merge_accumulators([totals]))
    assert isinstance(found, TallyFound)
    return found


@pytest.mark.parametrize(
    "work",
    [
        lambda number: tallied(0, number).found(),
        lambda number: add_up(range(number)),
    ],
    ids=["batches", "files"],
)
def test_twice_as_much_data_is_twice_the_work(
    work: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the values that are sorted: four times as many if each batch went through all others."""
    monkeypatch.setattr(tally, "MOST_WAITING", 1)
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

    def tally_of(sizes: list[int], file: int = 0, first: int = 0) -> Tally:
        adding = Tally.start(CONFIG, [("zone",)], Grouper(file))
        for size in sizes:
            adding.add(as_answers(ROWS, zones, np.arange(first, first + size)))
            first += size
        return adding

    whole = metrics_of(tally_of([300]))
    assert len(whole) == 41
    assert_alike(metrics_of(tally_of([1, 99, 7, 193])), whole)
    monkeypatch.setattr(tally, "MOST_WAITING", 1)
    assert_alike(metrics_of(tally_of([20] * 15)), whole)
    adding = AddUp(CONFIG)
    totals = [
        adding.add_input(adding.create_accumulator(), tally_of([20] * 5, file, 100 * file).found())
        for file in range(3)
    ]
    found = adding.extract_output(adding.merge_accumulators(totals))
    assert isinstance(found, TallyFound)
    assert_alike(metrics_of(Tally.resume(CONFIG, found)), whole)


def metrics_of(found: Tally) -> dict[Any, dict[Any, float]]:
    results = computations_of(CONFIG).results(found.measurement, found.reported())
    return {
        key: {name: float(value) for name, value in metrics.items() if not is_plot(name)}
        for key, metrics in results
    }


def assert_alike(found: dict[Any, dict[Any, float]], expected: dict[Any, dict[Any, float]]) -> None:
    assert set(found) == set(expected)
    within = partial(pytest.approx, rel=1e-12, nan_ok=True)
    assert all(found[key] == within(metrics) for key, metrics in expected.items())
