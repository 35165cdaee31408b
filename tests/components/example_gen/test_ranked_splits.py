"""Splits by class and by time: in proportion, the same in every order, and for every file."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.example_gen.columns.encoded import Cell
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.splits import Ranks, cut_groups, rank_rows
from trainer_module.errors import DataError

NAMES = ["eval", "train", "test"]
SHARES = [2, 8, 1]
FIRST = Cell("a.csv", 2)


def stratified(classes: np.ndarray) -> np.ndarray:
    """The split of rows of those classes, that are told apart by their position."""
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


def test_each_class_has_its_share_to_within_a_row():
    classes = np.repeat(np.arange(300), np.arange(1, 301))
    splits = stratified(classes)
    counts = np.array([np.bincount(splits[classes == c], minlength=3) for c in range(300)])
    np.testing.assert_array_less(abs(counts - counts.sum(1)[:, None] * np.array(SHARES) / 11), 1.01)
    assert counts[:, 1].min() == 1
    assert counts[0].tolist() == [0, 1, 0]


def test_ten_thousand_classes_of_four_rows_keep_the_shares():
    splits = stratified(np.arange(40_000) % 10_000)
    found = np.bincount(splits) / len(splits)
    np.testing.assert_allclose(found, np.array(SHARES) / 11, atol=0.01)
    assert np.all(np.bincount(np.arange(40_000)[splits == 1] % 10_000, minlength=10_000) >= 1)


def test_classes_are_told_apart_whatever_holds_them():
    settings = ExampleGenSettings(format="csv", label="label", task="multiclass", stratify=True)
    types = [pa.binary(), pa.large_binary()]
    parts = [
        rank_rows(
            pa.record_batch([pa.array(values, pa.large_list(kind))], ["label"]), FIRST, settings
        )
        for kind in types
        for values in ([[b"\xff"], [], [b"a", b"b"]], [None, [b"a"]])
    ]
    parts += [
        rank_rows(pa.record_batch([values], ["label"]), FIRST, settings)
        for values in (pa.array([[1], [2]]), pa.array([[1.5], []]), pa.nulls(2))
    ]
    cuts = cut_groups(parts, NAMES, SHARES, "")
    assert sorted(cuts.groups.to_pylist()) == [b"", b"1", b"1.5", b"2", b"a", b"\xff"]


def test_few_rows_move_when_others_come():
    classes = np.arange(22_000) % 5
    before, after = stratified(classes[:20_000]), stratified(classes)
    assert (before != after[:20_000]).mean() < 0.01


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
        [x / 4 - 1 for x in range(11)],
        [10**18 + x for x in range(11)],
        [f"2026-01-{day:02}" for day in range(1, 12)],
        [None, *(f"2026-01-31T{hour:02}:59:00.123456789Z" for hour in range(10))],
        [
            *(f" 2026-01-30 {hour:02}:30" for hour in range(14, 22)),
            *("2026-01-31T03:00+05:00", "2026-01-30 22:30Z", "2026-01-31"),
        ],
        [float("nan"), float("nan"), None, *range(8)],
    ],
)
def test_the_oldest_rows_are_trained_on(values):
    expected = [1] * 8 + [0] * 2 + [2]
    assert ordered(values) == expected
    assert ordered(values[::-1]) == expected[::-1]


@pytest.mark.parametrize(
    ("values", "shares", "expected"),
    [
        ([1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2], SHARES, [1] * 9 + [0, 0]),
        ([1, 2], [2, 8], [1, 0]),
        ([1, 1, 2, 2, 2, 2, 2, 2, 2, 3], [2, 8], [1] * 9 + [0]),
        ([1, *[2] * 20, 3], SHARES, [1, *[0] * 20, 2]),
        ([5, 5, 5], [2, 8], [1, 1, 1]),
    ],
)
def test_equal_times_stay_together(values, shares, expected):
    assert ordered(values, shares) == expected


@pytest.mark.parametrize("odd", ["31/01/2026", "soon", "2026-13-01", "\ud800"])
def test_a_value_that_is_no_time_is_named(odd):
    values = ["2026-01-01", None, odd.encode(errors="surrogatepass"), "2026-01-03"]
    with pytest.raises(DataError, match=r"is '.*' in row 4 of a\.csv, but data\.order_by needs"):
        ordered(values)


def test_rows_left_out_are_not_counted_as_undated():
    column = pa.array([[], [1], [2], [], [3]])
    settings = ExampleGenSettings(format="csv", label="y", task="regression", order_by="when")
    ranks = rank_rows(pa.record_batch([column], ["when"]), FIRST, settings)
    (all_rows,) = cut_groups([ranks], NAMES[:2], [2, 8], "when").notes
    assert all_rows.startswith("2 ")
    kept = ranks.only(np.array([True, True, True, False, True]))
    (some_rows,) = cut_groups([kept], NAMES[:2], [2, 8], "when").notes
    assert some_rows.startswith("1 ")


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


def test_a_class_of_one_row_is_trained_on(tmp_path, generate, refusal):
    lines = [f"class{i // 4},{i}" for i in range(200)] + ["alone,1", "single,2"]
    folders = [write(tmp_path / f"{files}", lines, files) for files in (1, 3)]
    assert "write data: {stratify: true}, so that train has all classes" in refusal(folders[0])
    one, other = (found(generate(folder, stratify=True), "label") for folder in folders)
    assert one == other
    counts = Counter(one["train"])
    assert set(counts) == {b"alone", b"single", *(f"class{i}".encode() for i in range(50))}
    assert set(counts.values()) == {1, 2, 3}
    assert len(one["eval"]) == pytest.approx(67, abs=8)


def test_the_newest_rows_are_evaluated_on(tmp_path, execute, read_split, generate, refusal):
    lines = [f"{i % 2},2026-03-{1 + i // 10:02}" for i in range(300)] + ["1,", "0,"]
    folder = write(tmp_path / "csv", lines, 3)
    splits = found(generate(folder, order_by="when"), "when")
    assert splits["train"][-1] < splits["eval"][0]
    assert [len(splits[name]) for name in ("train", "eval")] == [200, 100]
    assert (
        "2 rows without a value of 'when' count as the oldest"
        in read_notes(execute(folder, order_by="when")).sentences
    )
    assert "data.order_by: the data has no column 'date'; it has label" in (
        refusal(folder, order_by="date")
    )
