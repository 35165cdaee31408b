"""Stratified splits and splits by time: shares, and independence of the order of rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.example_gen.columns.encoded import Cell
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.splits import Ranks, cut_groups, rank_rows
from trainer_module.errors import DataError

NAMES = ["eval", "train", "test"]
SHARES = [2, 8, 1]
FIRST = Cell("a.csv", 2)


def stratified(classes: np.ndarray) -> np.ndarray:
    """The split of each row, of rows of those classes."""
    rows = pa.record_batch(
        [pa.array(values[:, None].tolist()) for values in (classes, np.arange(len(classes)))],
        ["label", "x"],
    )
    settings = ExampleGenSettings(format="csv", label="label", task="multiclass", stratify=True)
    ranks = rank_rows(rows, FIRST, settings)
    halves = [
        Ranks(ranks.groups[part], ranks.keys[part])
        for part in (slice(len(classes) // 2, None), slice(0, len(classes) // 2))
    ]
    return cut_groups(halves, NAMES, SHARES, "").assign(ranks)


def test_each_class_has_its_share_in_each_split():
    classes = np.repeat(np.arange(300), np.arange(1, 301))
    splits = stratified(classes)
    counts = np.array([np.bincount(splits[classes == c], minlength=3) for c in range(300)])
    np.testing.assert_array_less(abs(counts - counts.sum(1)[:, None] * np.array(SHARES) / 11), 1.01)
    assert counts[:, 1].min() == 1
    assert counts[0].tolist() == [0, 1, 0]


def ordered(values: list[object], shares: list[int] = SHARES) -> list[int]:
    """The split of rows with those values of `when`."""
    column = pa.array([[] if value is None else [value] for value in values])
    if pa.types.is_string(column.type.value_type):
        column = column.cast(pa.list_(pa.binary()))
    settings = ExampleGenSettings(format="csv", label="y", task="regression", order_by="when")
    ranks = rank_rows(pa.record_batch([column], ["when"]), FIRST, settings)
    return cut_groups([ranks], NAMES[: len(shares)], shares, "when").assign(ranks).tolist()


@pytest.mark.parametrize(
    "values",
    [
        list(range(11)),
        [f"2026-01-{day:02}" for day in range(1, 12)],
        [
            *(f" 2026-01-30 {hour:02}:30" for hour in range(14, 22)),
            *("2026-01-31T03:00+05:00", "2026-01-30 22:30Z", "2026-01-31"),
        ],
        [float("nan"), float("nan"), None, *range(8)],
    ],
)
def test_oldest_rows_are_in_train(values):
    expected = [1] * 8 + [0] * 2 + [2]
    assert ordered(values) == expected
    assert ordered(values[::-1]) == expected[::-1]


@pytest.mark.parametrize(
    ("values", "shares", "expected"),
    [
        ([1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2], SHARES, [1] * 9 + [0, 0]),
        ([1, 1, 2, 2, 2, 2, 2, 2, 2, 3], [2, 8], [1] * 9 + [0]),
        ([5, 5, 5], [2, 8], [1, 1, 1]),
    ],
)
def test_equal_times_stay_together(values, shares, expected):
    assert ordered(values, shares) == expected


@pytest.mark.parametrize(
    "odd",
    [
        "31/01/2026",
        "2026-13-01",
    ],
)
def test_invalid_time_is_refused_with_its_row(odd):
    values = ["2026-01-01", None, odd.encode(errors="surrogatepass"), "2026-01-03"]
    with pytest.raises(DataError, match=r"in row 4 of a\.csv, but data\.order_by"):
        ordered(values)


def write(folder: Path, lines: list[str], files: int) -> Path:
    """Writes rows to several files, in any order."""
    folder.mkdir()
    random.Random(files).shuffle(lines)  # noqa: S311 - no secret
    for number in range(files):
        text = "\n".join(["label,when", *lines[number::files]])
        (folder / f"{number}.csv").write_text(text + "\n")
    return folder


def found(examples: dict[str, list], name: str) -> dict[str, list]:
    """A column's values, by split."""
    return {
        split: sorted(
            value
            for row in rows
            for kind in (row.features.feature[name],)
            for value in (*kind.bytes_list.value, *kind.int64_list.value)
        )
        for split, rows in examples.items()
    }


def test_class_of_one_row_is_in_train(tmp_path, generate):
    lines = [f"class{i // 4},{i}" for i in range(200)] + ["alone,1", "single,2"]
    splits = found(generate(write(tmp_path / "csv", lines, 3), stratify=True), "label")
    counts = Counter(splits["train"])
    assert set(counts) == {b"alone", b"single", *(f"class{i}".encode() for i in range(50))}
    assert set(counts.values()) == {1, 2, 3}
    assert len(splits["eval"]) == pytest.approx(67, abs=8)


def test_newest_rows_are_in_eval(tmp_path, generate):
    lines = [f"{i % 2},2026-03-{1 + i // 10:02}" for i in range(300)] + ["1,", "0,"]
    splits = found(generate(write(tmp_path / "csv", lines, 3), order_by="when"), "when")
    assert splits["train"][-1] < splits["eval"][0]
    assert [len(splits[name]) for name in ("train", "eval")] == [200, 100]
