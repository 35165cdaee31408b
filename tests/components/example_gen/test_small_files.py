"""Many small files become few shards, with the same rows in the same splits as one file's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
import tensorflow as tf
from tfx.proto import example_gen_pb2

from components.example_gen import planning
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source

TABLE = pa.table({"x": [i / 4 for i in range(240)], "label": [i % 2 for i in range(240)]})
FILES = 40


@pytest.mark.slow
def test_small_files_share_shards_with_the_rows_and_splits_of_one_file(
    tmp_path: Path,
    execute: Callable[..., Any],
    read_split: Callable[..., list[bytes]],
) -> None:
    rows = TABLE.num_rows // FILES
    found = []
    for folder, size in (("many", rows), ("one", TABLE.num_rows)):
        (tmp_path / folder).mkdir()
        for start in range(0, TABLE.num_rows, size):
            path = tmp_path / folder / f"{start:03d}.csv"
            pa_csv.write_csv(TABLE.slice(start, size), str(path))
        examples = execute(tmp_path / folder)
        assert len(list(Path(examples.uri).glob("Split-train/*"))) <= (1 if folder == "one" else 16)
        found.append(
            {split: sorted(values_of(read_split(examples, split))) for split in ("train", "eval")}
        )
    assert found[0] == found[1]
    assert sorted(found[0]["train"] + found[0]["eval"]) == TABLE["x"].to_pylist()


def values_of(records: list[bytes]) -> list[float]:
    examples = map(tf.train.Example.FromString, records)
    return [example.features.feature["x"].float_list.value[0] for example in examples]


def test_number_of_shards_depends_on_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files together up to a size, a large one alone; of a very large one not too many."""
    monkeypatch.setattr(planning, "_BUNDLE_BYTES", 100)
    monkeypatch.setattr(planning, "_SHARD_BYTES", 1000)
    monkeypatch.setattr(planning, "_MAX_SHARDS", 5)
    assert plan(tmp_path / "large", [40, 60, 1, 2500, 30, 30, 99_000]) == [
        (["0", "1"], 0, 1),
        (["2"], 1, 1),
        (["3"], 2, 3),
        (["4", "5"], 5, 1),
        (["6"], 6, 5),
    ]
    # Of little data there are as many as several processes need.
    assert plan(tmp_path / "few", [10, 10, 10]) == [(["0"], 0, 1), (["1"], 1, 1), (["2"], 2, 1)]
    assert len(plan(tmp_path / "many", [1] * 160)) == 8


def plan(folder: Path, sizes: list[int]) -> list[tuple[list[str], int, int]]:
    """The files of each chunk, the first of its shards, and how many it has."""
    folder.mkdir()
    for number, size in enumerate(sizes):
        (folder / f"{number}.csv").write_bytes(b"x" * size)
    settings = ExampleGenSettings(format="csv", label="label", task="binary")
    inputs = example_gen_pb2.Input()
    inputs.splits.add(name="all", pattern="*.csv")
    chunks, _ = planning.plan_chunks(make_source(settings), str(folder), inputs, settings)
    assert {chunk.all_shards for chunk in chunks} == {sum(chunk.shards for chunk in chunks)}
    return [
        (
            [Path(file).stem for group in chunk.groups for file in group],
            chunk.first_shard,
            chunk.shards,
        )
        for chunk in chunks
    ]
