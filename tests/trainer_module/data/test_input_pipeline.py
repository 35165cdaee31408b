"""Batches from memory and from files: the same examples, order and label handling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer_data import strategy_settings, to_example, write_examples
from trainer_module.data.dealing import first_examples
from trainer_module.data.examples import Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import Strategy, Task
from trainer_module.strategies import build_strategy

PROBLEM = Problem(Task.BINARY, "y", ("0", "1"), (TransformedFeature("x", "numeric", (1,)),))
SPEC = {
    "x": tf.io.FixedLenFeature([1], tf.float32),
    "y": tf.io.FixedLenFeature([1], tf.int64),
}
BOTH_SOURCES = pytest.mark.parametrize("max_bytes", [1_000_000, 0], ids=["memory", "files"])
SOURCES = pytest.mark.parametrize(
    "max_bytes", [1_000_000, pytest.param(0, marks=pytest.mark.slow)], ids=["memory", "files"]
)


def load(
    tmp_path: Path, labels: list[int], max_bytes: int = 1_000_000, batch: int = 4, **options: int
) -> Split:
    """A split in two files; the number of an example is its x."""
    records = [to_example({"x": float(x), "y": y}) for x, y in enumerate(labels)]
    write_examples(tmp_path / "data-0.gz", records[: len(records) // 2])
    write_examples(tmp_path / "data-1.gz", records[len(records) // 2 :])
    reader = Reader([str(tmp_path / "data-*")], SPEC, PROBLEM)
    return Split(reader, reader.read("train", max_bytes), batch, **options)


def read(split: Split, steps: int, start: int = 0, worker: int = 0) -> list[list[int]]:
    """The examples in each batch of a worker with one replica."""
    context = tf.distribute.InputContext(split.workers, worker, split.replicas)
    batches = split.batches(context, start).take(steps)
    return [[int(x) for x in features["x"][:, 0]] for features, _ in batches]


def flat(batches: list[list[int]]) -> list[int]:
    return [x for batch in batches for x in batch]


def test_examples_are_read_into_the_memory_of_the_machine(tmp_path: Path) -> None:
    """A GPU's memory may be smaller; here the second CPU is TensorFlow's first choice instead."""
    with tf.device("CPU:1"):
        split = load(tmp_path, [0, 1, -1, 0, 1])
        assert tf.zeros(1).backing_device.endswith("CPU:1")
    assert split.examples == 4
    assert split.content.tensors is not None
    for values in split.content.tensors.values():
        assert values.backing_device.endswith("CPU:0")


@SOURCES
def test_each_example_is_evaluated_once_with_its_label(tmp_path: Path, max_bytes: int) -> None:
    split = load(tmp_path, [0, 1, 1, 0, 1, 0, 1, 1, 0, 0], max_bytes)
    assert split.source == ("memory" if max_bytes else "files")
    assert (split.examples, split.steps) == (10, 3)
    batches = [(f["x"].numpy(), y.numpy()) for f, y in split.batches(tf.distribute.InputContext())]
    assert [len(y) for _, y in batches] == [3, 3, 4], "even batches, none of them empty"
    labels = {int(x): int(y) for xs, ys in batches for x, y in zip(xs[:, 0], ys[:, 0], strict=True)}
    assert labels == dict(enumerate([0, 1, 1, 0, 1, 0, 1, 1, 0, 0]))


@BOTH_SOURCES
@pytest.mark.parametrize(("examples", "workers"), [(10, 3)])
def test_workers_evaluate_every_example_once(
    tmp_path: Path, max_bytes: int, examples: int, workers: int
) -> None:
    split = load(tmp_path, [0] * examples, max_bytes, batch=2, replicas=workers, workers=workers)
    parts = [read(split, 100, worker=worker) for worker in range(workers)]
    assert {len(part) for part in parts} == {split.steps}
    assert all(batch for part in parts for batch in part), "kernels refuse empty batches"
    assert sorted(flat(flat(parts))) == list(range(examples))


@SOURCES
def test_batches_of_training_are_full_and_begin_the_next_round(
    tmp_path: Path, max_bytes: int
) -> None:
    split = load(tmp_path, [0, 1] * 5, max_bytes, shuffle_seed=1)
    assert split.steps == 3
    batches = read(split, 5)
    assert [len(batch) for batch in batches] == [4] * 5
    drawn = flat(batches)
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(range(10))
    assert drawn[:10] != drawn[10:]


@SOURCES
def test_bounded_evaluation_has_the_first_examples(tmp_path: Path, max_bytes: int) -> None:
    """Those with a label, of what is left of a split that was divided before."""
    split = load(tmp_path, [0, -1, 1, 0, 1, 0, 1, 1, 0, 0], max_bytes, replicas=2, workers=2)
    later = replace(
        split,
        reader=split.reader.select(np.arange(10) > 0),
        content=split.content.select(np.arange(10) > 0),
    )
    for count, expected in ((5, [2, 3, 4, 5, 6]), (99, [2, 3, 4, 5, 6, 7, 8, 9])):
        bounded = first_examples(later, count)
        drawn = [flat(read(bounded, 9, worker=worker)) for worker in (0, 1)]
        assert sorted(flat(drawn)) == expected


def test_epoch_has_the_configured_steps(tmp_path: Path) -> None:
    split = load(tmp_path, [0, 1] * 5, shuffle_seed=1, steps_per_epoch=2)
    assert split.steps == 2
    drawn = flat(read(split, 5))
    assert sorted(drawn[:10]) == list(range(10)), "what follows has not come up yet"


def test_a_new_order_every_round_and_the_same_for_a_seed(tmp_path: Path) -> None:
    split = load(tmp_path, [0, 1] * 20, shuffle_seed=1)
    drawn = flat(read(split, 20))
    first, second = drawn[:40], drawn[40:]
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert np.abs(np.diff(first)).mean() > 5, "neighbours do not stay together"
    assert flat(read(load(tmp_path, [0, 1] * 20, shuffle_seed=1), 20)) == drawn
    assert flat(read(load(tmp_path, [0, 1] * 20, shuffle_seed=2), 20)) != drawn


@SOURCES
def test_resumed_training_has_the_examples_of_its_step(tmp_path: Path, max_bytes: int) -> None:
    split = load(tmp_path, [0, 1, -1] * 5, max_bytes, shuffle_seed=1)
    assert read(split, 9)[5:] == read(split, 4, start=5)


def test_replicas_and_workers_share_the_batches_of_one(tmp_path: Path) -> None:
    """However many there are, and on however many workers."""
    alone = read(load(tmp_path, [0, 1] * 7, batch=4, shuffle_seed=1), 5)
    shared = load(tmp_path, [0, 1] * 7, batch=1, replicas=4, workers=2, shuffle_seed=1)
    parts = [read(shared, 10, worker=worker) for worker in (0, 1)]
    together = [flat(parts[0][2 * s : 2 * s + 2] + parts[1][2 * s : 2 * s + 2]) for s in range(5)]
    assert together == alone


@pytest.mark.slow
def test_workers_have_a_share_of_the_files_each(tmp_path: Path) -> None:
    options = {"batch": 2, "replicas": 2, "workers": 2, "shuffle_seed": 1}
    split = load(tmp_path, [0, 1, -1] * 5, 0, **options)
    assert split.examples_per_worker == [5, 5]
    drawn = [set(flat(read(split, 20, worker=worker))) for worker in (0, 1)]
    assert drawn[0] | drawn[1] == {x for x in range(15) if x % 3 < 2}
    assert not drawn[0] & drawn[1]


def test_a_batch_larger_than_the_split_shrinks(tmp_path: Path) -> None:
    split = load(tmp_path, [0, 1] * 5, batch=64, replicas=2, shuffle_seed=1).fitted()
    assert (split.batch_size, split.global_batch_size, split.steps) == (5, 10, 1)


@SOURCES
def test_unusable_labels_are_left_out(
    tmp_path: Path, max_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    split = load(tmp_path, [0, -1, 1, 0, -1, 1, 0, 1], max_bytes)
    assert split.examples == 6
    assert sorted(flat(read(split, 9))) == [0, 2, 3, 5, 6, 7]
    assert "left out 2 examples" in caplog.text


def test_split_without_usable_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="the train split has no example"):
        load(tmp_path, [-1, -1])


@pytest.mark.parametrize("kind", [Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE])
@SOURCES
def test_strategies_distribute_every_example(
    tmp_path: Path, max_bytes: int, kind: Strategy
) -> None:
    strategy = build_strategy(strategy_settings(kind))
    split = load(tmp_path, [0, 1] * 5, max_bytes, replicas=strategy.num_replicas_in_sync)
    seen: list[float] = []
    for features, _ in split.distribute(strategy):
        for replica in strategy.experimental_local_results(features["x"]):
            seen += np.ravel(replica).tolist()
    assert sorted(seen) == list(range(10))


@pytest.mark.slow
@SOURCES
def test_workers_of_servers_read_in_different_orders(tmp_path: Path, max_bytes: int) -> None:
    split = load(tmp_path, [0, 1, -1, 1] * 5, max_bytes, batch=5, shuffle_seed=1)
    read_once = tf.function(lambda: list(_take(split.read_by_servers(None), 3)))
    first, second = (np.ravel(read_once()).tolist() for _ in range(2))
    assert first != second
    assert sorted(first) == [x for x in range(20) if x % 4 != 2] or not max_bytes


def _take(dataset: tf.data.Dataset, count: int) -> list[tf.Tensor]:
    iterator = iter(dataset)
    return [next(iterator)[0]["x"] for _ in range(count)]


@pytest.mark.parametrize("files", [11])
def test_records_and_their_batches_have_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """More files than are read at a time, and of different lengths."""
    monkeypatch.setattr("trainer_module.data.examples.PARSE_BATCH", 3)
    numbers = iter(range(1000))
    for file in range(files):
        rows = [to_example({"x": float(next(numbers)), "y": 1}) for _ in range(4 + file % 5)]
        write_examples(tmp_path / f"data-{file:02}.gz", rows)
    reader = Reader([str(tmp_path / "data-*")], SPEC, PROBLEM)
    one_by_one = list(reader.records().as_numpy_iterator())
    assert one_by_one == [record for batch in reader.batches() for record in batch.numpy()]
    assert len(set(one_by_one)) == next(numbers)
    content = reader.read("train")
    assert content.tensors is not None
    found = [reader.parse(tf.constant([record]))["x"].numpy().item() for record in one_by_one]
    assert content.tensors["x"].numpy().ravel().tolist() == found
    chosen = np.arange(len(found)) % 2 == 0
    some = reader.select(chosen).read("train").tensors
    assert some is not None
    assert some["x"].numpy().ravel().tolist() == found[::2]
