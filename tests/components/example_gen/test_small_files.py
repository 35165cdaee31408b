"""Many small files become few shards, and a large file several."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfx.proto import example_gen_pb2

from components.example_gen import planning
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source


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
