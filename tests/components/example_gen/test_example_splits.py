"""Random splits depend on a row's values alone, and have the configured shares."""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest

from components.example_gen.notes import read_notes
from components.example_gen.splits import assign_splits, hash_rows, split_hashes
from trainer_module.errors import DataError

INTS = [[1], [], [2, 3], [-1], None]
FLOATS = [[0.5], [1.0], [], [-0.0, 2.0], [0.0]]
TEXTS = [[b"a"], [b"b", b""], [b"\xff"], [], [b"a"]]
EXPECTED = [
    12439616714147933144,
    6440100490990630414,
    2282047817348969166,
    14259184314323483540,
    1159610316852488631,
]


def batch(**columns: pa.Array) -> pa.RecordBatch:
    """Rows of list columns."""
    return pa.record_batch(columns)


def rows() -> pa.RecordBatch:
    """Rows of all types, with missing values and several."""
    return batch(
        i=pa.array(INTS, pa.large_list(pa.int64())),
        f=pa.array(FLOATS, pa.large_list(pa.float32())),
        t=pa.array(TEXTS, pa.large_list(pa.binary())),
    )


def test_hashes_are_those_of_earlier_releases():
    # Kept values: another would move the rows of existing data sets between their splits.
    assert hash_rows(rows()).tolist() == EXPECTED


def test_hashes_depend_on_neither_order_nor_representation():
    flipped = batch(
        t=pa.array(TEXTS[::-1], pa.list_(pa.large_binary())),
        nothing=pa.nulls(5),
        f=pa.array(FLOATS[::-1], pa.list_(pa.float32())),
        i=pa.array([[] if value is None else value for value in INTS[::-1]], pa.list_(pa.int64())),
    )
    assert hash_rows(flipped)[::-1].tolist() == hash_rows(rows()).tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1], "b": [2]}, {"a": [2], "b": [1]}),
        ({"a": [1], "b": []}, {"a": [], "b": [1]}),
    ],
)
def test_different_rows_hash_differently(one, other):
    hashes = [
        hash_rows(
            batch(**{name: pa.array([value], pa.list_(pa.int64())) for name, value in row.items()})
        )
        for row in (one, other)
    ]
    assert hashes[0] != hashes[1]


@pytest.mark.parametrize(
    "buckets",
    [
        [8, 2],
        [1, 1, 1],
        [98, 1, 1],
    ],
)
def test_shares_are_kept(buckets):
    count = 50_000
    numbers = pa.array(np.arange(count)[:, None].tolist(), pa.list_(pa.int64()))
    found = np.bincount(assign_splits(split_hashes(batch(x=numbers)), buckets)) / count
    np.testing.assert_allclose(found, np.array(buckets) / sum(buckets), atol=0.01)


@pytest.mark.slow
def test_splits_are_independent_of_the_order_of_files_and_rows(tmp_path, generate):
    lines = [f"{i % 2},{i},name {i % 7}" for i in range(200)] * 2
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "a.csv").write_text("\n".join(["label,x,name", *lines]))
    random.Random(1).shuffle(lines)  # noqa: S311 - no secret
    for number in range(4):
        chunk = lines[number::4]
        (other / f"{number}.csv").write_text("\n".join(["label,x,name", *chunk]))
    splits = [
        {
            name: sorted(example.features.feature["x"].float_list.value[0] for example in examples)
            for name, examples in generate(folder).items()
        }
        for folder in (one, other)
    ]
    assert splits[0] == splits[1]
    # Each row is there twice, and both in the same split.
    assert all(xs[::2] == xs[1::2] for xs in splits[0].values())


def test_rows_of_a_group_are_in_one_split(tmp_path, generate):
    lines = [f"{i % 2},{i % 10},{i}" for i in range(400)]
    (tmp_path / "a.csv").write_text("\n".join(["label,user,row", *lines]))
    splits = generate(tmp_path, by="user", whole_columns=("user",), splits={"train": 1, "eval": 1})
    users = [
        {example.features.feature["user"].int64_list.value[0] for example in examples}
        for examples in splits.values()
    ]
    assert users[0] | users[1] == set(range(10))
    assert not users[0] & users[1]
    with pytest.raises(DataError, match=r"data\.split_by: .*'person'.* t, f"):
        split_hashes(rows().select(["t", "f"]), "person")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("equal", "by", "note"),
    [
        (
            900,
            None,
            r"'eval' has \d+\.\d% of the rows, instead of 33%",
        ),
    ],
)
def test_small_split_because_of_equal_rows_is_noted(tmp_path, execute, equal, by, note):
    rows = [f"{i % 2},{i},name {i % 5}" for i in range(1500)] + ["1,7.5,name 8"] * equal
    random.Random(1).shuffle(rows)  # noqa: S311 - no secret
    (tmp_path / "a.csv").write_text("\n".join(["label,x,name", *rows]))
    found = execute(tmp_path, by=by, split_by=by or "", task="regression")
    sentences = read_notes(found).sentences
    assert not sentences if note is None else re.search(note, "; ".join(sentences)), sentences
