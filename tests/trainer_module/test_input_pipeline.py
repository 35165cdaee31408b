"""Batches from memory and from files: the same examples, order and label handling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from trainer_data import to_example, write_examples

from trainer_module.errors import TrainingError
from trainer_module.input_pipeline import Split, load_split, steps_per_execution
from trainer_module.problem import Problem, TransformedFeature
from trainer_module.settings import Strategy, Task
from trainer_module.strategies import build_strategy

PROBLEM = Problem(Task.BINARY, "y", ("0", "1"), (TransformedFeature("x", "numeric", (1,)),))
SPEC = {
    "x": tf.io.FixedLenFeature([1], tf.float32),
    "y": tf.io.FixedLenFeature([1], tf.int64),
}
SOURCES = pytest.mark.parametrize("max_bytes", [1_000_000, 0], ids=["memory", "files"])


def load(tmp_path: Path, labels: list[int], max_bytes: int, seed: int | None = None) -> Split:
    """A split in two files; the number of an example is its x."""
    records = [to_example({"x": float(x), "y": y}) for x, y in enumerate(labels)]
    write_examples(tmp_path / "data-0.gz", records[: len(records) // 2])
    write_examples(tmp_path / "data-1.gz", records[len(records) // 2 :])
    pattern = [str(tmp_path / "data-*")]
    return load_split("train", pattern, SPEC, PROBLEM, 4, shuffle_seed=seed, max_bytes=max_bytes)


def read_epoch(split: Split) -> list[int]:
    return [int(x) for features, _ in split.dataset for x in features["x"][:, 0]]


@SOURCES
def test_every_example_comes_once_with_its_label(tmp_path: Path, max_bytes: int) -> None:
    split = load(tmp_path, [0, 1, 1, 0, 1, 0, 1, 1, 0, 0], max_bytes, seed=1)
    assert split.source == ("memory" if max_bytes else "files")
    assert (split.examples, split.steps, split.dataset.cardinality().numpy()) == (10, 3, 3)
    batches = [(f["x"].numpy(), y.numpy()) for f, y in split.dataset]
    assert [len(y) for _, y in batches] == [4, 4, 2], "the last batch is smaller, not dropped"
    labels = {int(x): int(y) for xs, ys in batches for x, y in zip(xs[:, 0], ys[:, 0], strict=True)}
    assert labels == dict(enumerate([0, 1, 1, 0, 1, 0, 1, 1, 0, 0]))


@SOURCES
def test_shuffled_anew_every_epoch_and_the_same_for_a_seed(tmp_path: Path, max_bytes: int) -> None:
    split = load(tmp_path, [0, 1] * 20, max_bytes, seed=1)
    first, second = read_epoch(split), read_epoch(split)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert first != sorted(first)
    again = load(tmp_path, [0, 1] * 20, max_bytes, seed=1)
    assert sorted(read_epoch(again)) == sorted(first)
    assert max_bytes == 0 or read_epoch(load(tmp_path, [0, 1] * 20, max_bytes, seed=1)) == first


def test_memory_keeps_the_order_unless_told_to_shuffle(tmp_path: Path) -> None:
    split = load(tmp_path, [0, 1] * 5, max_bytes=1_000_000)
    assert read_epoch(split) == read_epoch(split)
    assert sorted(read_epoch(split)) == list(range(10))


@SOURCES
def test_unusable_labels_are_left_out(
    tmp_path: Path, max_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    split = load(tmp_path, [0, -1, 1, 0, -1, 1, 0, 1], max_bytes)
    assert split.examples == 6
    assert sorted(read_epoch(split)) == [0, 2, 3, 5, 6, 7]
    assert [len(y) for _, y in split.dataset] == [4, 2]
    assert "train: 2 examples without a usable label left out" in caplog.text


def test_no_usable_label_at_all(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="the train split has no example with a usable label"):
        load(tmp_path, [-1, -1], 1_000_000)


@pytest.mark.parametrize("name", [Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE])
@SOURCES
def test_strategies_distribute_every_example(
    tmp_path: Path, max_bytes: int, name: Strategy
) -> None:
    strategy = build_strategy(name)
    split = load(tmp_path, [0, 1] * 5, max_bytes, seed=1)
    seen: list[float] = []
    for features, _ in strategy.experimental_distribute_dataset(split.dataset):
        for replica in strategy.experimental_local_results(features["x"]):
            seen += np.ravel(replica).tolist()
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize(
    ("examples", "replicas", "expected"),
    [
        (4 * 100, 1, 16),
        (4 * 5, 1, 5),
        (4 * 7 + 2, 1, 8),
        (4 * 100, 2, 16),
        (4 * 30 + 2, 2, 15),
        (4 * 7 + 2, 2, 7),
        (4 * 17 + 2, 2, 1),
        (2, 2, 1),
    ],
)
def test_steps_per_execution(examples: int, replicas: int, expected: int) -> None:
    """No more than an epoch has; several replicas run a smaller last batch alone."""
    split = Split(tf.data.Dataset.range(1), examples, batch_size=4, source="memory")
    assert steps_per_execution(split, replicas, epochs=10_000) == expected


def test_short_training_runs_step_by_step() -> None:
    """Tracing the loop takes longer than a short training gains."""
    split = Split(tf.data.Dataset.range(1), 400, 10, "memory")
    assert steps_per_execution(split, 1, epochs=2) == 1
