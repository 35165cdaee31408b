"""Very many slices are counted in bounded memory, and the largest are found."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from components.evaluator.batched import crowds
from components.evaluator.batched.crowds import Counts, add_up, find_largest
from components.evaluator.batched.slices import Slicer

ROWS, MOST = 40_000, 500
KIND = ("zone",)


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "MOST_COUNTED", MOST)
    monkeypatch.setattr(crowds, "MOST_TRACKED", 50)
    monkeypatch.setattr(crowds, "MOST_SLICES", 20)


def counted(values: np.ndarray) -> Counts:
    counts = Counts()
    for batch in np.array_split(values, 37):
        hashes, rows = np.unique(batch, return_counts=True)
        counts.add(hashes.astype(np.uint64), rows)
    return counts


def test_the_largest_of_more_than_are_counted_are_found(most: None) -> None:
    """By the bound of Misra and Gries, in two files of which each has largest ones of its own."""
    random = np.random.default_rng(3)
    rare = random.integers(1000, 10**9, ROWS)
    large = np.repeat(np.arange(20), 3 * ROWS // MOST)
    files = [np.concatenate([rare[: ROWS // 2], large[::2]]), np.concatenate([large, rare])]
    parts = [{KIND: counted(random.permutation(file))} for file in files]
    exact = Counter(np.concatenate(files).tolist())
    assert set(np.arange(20)) == {value for value, _ in exact.most_common(20)}
    total = add_up(parts)[KIND]
    assert len(total._hashes) <= MOST
    for value, rows in zip(total._hashes.tolist(), total._rows.tolist(), strict=True):
        assert exact[value] - sum(exact.values()) / MOST <= rows <= exact[value]
    largest = find_largest({KIND: total})[KIND]
    assert set(np.arange(20)) == set(largest.hashes.tolist())
    assert not largest.is_exact
    assert largest.distinct <= MOST


def test_counts_of_fewer_are_exact_and_few_need_none(most: None) -> None:
    values = np.random.default_rng(4).integers(0, 400, 5000)
    total = add_up([{KIND: counted(values[:99])}, {KIND: counted(values[99:])}])
    exact = Counter(values.tolist())
    found = total[KIND].largest()
    assert found is not None
    assert found.is_exact
    assert found.distinct == len(exact)
    least = exact.most_common(20)[-1][1]
    assert all(exact[value] >= least for value in found.hashes.tolist())
    assert find_largest({KIND: counted(values % 50)}) == {}


def test_slices_are_counted_and_picked_by_the_same_hashes() -> None:
    """Of text, numbers and their crosses, whatever batch they are in."""
    batch = pa.record_batch(
        {
            "plan": pa.array([[b"a"], [b"b", b"a"], None, [b"b"]], pa.large_list(pa.binary())),
            "zone": pa.array([[1], [2], [1], [2]], pa.large_list(pa.int64())),
        }
    )
    kinds = [("plan",), ("zone",), ("plan", "zone")]
    slicer = Slicer(kinds)
    rows: Counter[tuple[tuple[str, ...], int]] = Counter()
    for start in range(4):
        for kind, (hashes, counts) in slicer.count(batch.slice(start, 1)).items():
            for number, count in zip(hashes.tolist(), counts.tolist(), strict=True):
                rows[kind, number] += count
    assert sorted(rows.values()) == [1, 1, 2, 2, 2, 2, 2]
    assert slicer.keys == [()], "nothing is numbered"
    (cross,) = [n for (kind, n), count in rows.items() if kind == kinds[2] and count == 2]
    picked = crowds.Largest(np.array([cross], np.uint64), 3, True)
    other = Slicer([kinds[2]], {kinds[2]: picked})
    members = other.members(4, batch)
    assert other.keys == [(), (("plan", "b"), ("zone", 2))]
    assert members.rows[members.slices == 1].tolist() == [1, 3]
