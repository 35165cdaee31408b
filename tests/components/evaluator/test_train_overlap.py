"""The share of an evaluation's rows that the model in service was trained on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx.types import Artifact, artifact_utils, standard_artifacts
from tfx.types import standard_component_specs as specs

from components.evaluator.executor import WARM_START_KEY, Executor
from components.evaluator.intervals import BASELINE_EXAMPLES_KEY, TRAINING_EXAMPLES_KEY
from components.evaluator.train_overlap import TrainOverlap, find_train_overlap
from trainer_module.errors import DataError

Rows = Sequence[dict[str, Any]]
ROWS = [{"id": n, "size": n / 3, "kind": f"k{n % 4}", "label": n % 2} for n in range(200)]
numbers = itertools.count(1)


def read(folder: Path, train: Rows = (), held: Rows = (), files: int = 1) -> Artifact:
    """Examples as ExampleGen leaves them."""
    examples = standard_artifacts.Examples()
    examples.id = next(numbers)
    examples.uri = str(folder / str(examples.id))
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    for split, rows in (("train", train), ("eval", held)):
        for file in range(files):
            path = Path(examples.uri, f"Split-{split}", f"data-{file}.gz")
            path.parent.mkdir(parents=True, exist_ok=True)
            with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
                for row in rows[file::files]:
                    writer.write(_example(row))
    return examples


def _example(row: dict[str, Any]) -> bytes:
    example = tf.train.Example()
    for name, value in row.items():
        feature = example.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.float_list.value.append(value)
    return bytes(example.SerializeToString())


def found(folder: Path, learnt: Rows, held: Rows, own: Rows = ()) -> float:
    now = read(folder, own, held)
    return find_train_overlap([now], "eval", [read(folder, learnt, files=3)], [now]).share


def test_share_of_eval_rows_in_earlier_training_data(tmp_path: Path) -> None:
    assert found(tmp_path, ROWS[:160], ROWS[120:], ROWS[:120]) == 0.5
    assert found(tmp_path, ROWS[:160], ROWS[160:], ROWS[:160]) == 0, "as it was"


@pytest.mark.parametrize(
    "changed",
    [
        [{name: value for name, value in row.items() if name != "size"} for row in ROWS],
    ],
)
def test_rows_are_compared_by_common_columns(tmp_path: Path, changed: Rows) -> None:
    """By a hash of the record, a column that comes or goes splits all rows anew."""
    assert found(tmp_path, ROWS[:100], changed) == 0.5


def test_limit_of_the_share_falls_with_rows() -> None:
    shares = [(0.04, 500), (0.06, 500), (0.015, 10_000), (0.017, 10_000), (0.0, 0)]
    found = [TrainOverlap(*known).exceeds_limit for known in shares]
    assert found == [False, True, False, True, False]


def test_warm_start_from_a_model_trained_on_eval_rows_is_refused(tmp_path: Path) -> None:
    """By a warm start the new model itself has learnt from them."""
    now = read(tmp_path, ROWS[100:], ROWS[:100])
    inputs = {
        specs.EXAMPLES_KEY: [now],
        specs.BASELINE_MODEL_KEY: [standard_artifacts.Model()],
        BASELINE_EXAMPLES_KEY: [read(tmp_path, ROWS[:80])],
        TRAINING_EXAMPLES_KEY: [now],
    }
    properties = {specs.EXAMPLE_SPLITS_KEY: json.dumps(["eval"]), WARM_START_KEY: 1}
    with pytest.raises(DataError, match=r"80% .*schedule\.warm_start=false"):
        Executor().Do(inputs, {}, properties)
