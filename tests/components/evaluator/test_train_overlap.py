"""Which share of an evaluation's rows the model in service has learnt from."""

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

from components.evaluator import train_overlap
from components.evaluator.executor import WARM_START_KEY, Executor
from components.evaluator.intervals import BASELINE_EXAMPLES_KEY, TRAINING_EXAMPLES_KEY
from components.evaluator.train_overlap import TrainOverlap, find_train_overlap
from trainer_module.errors import DataError

Rows = Sequence[dict[str, Any]]
ROWS = [{"id": n, "size": n / 3, "kind": f"k{n % 4}", "label": n % 2} for n in range(200)]
ALIKE = [{"kind": f"k{n % 4}", "label": n % 2} for n in range(200)]
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


def test_another_split_of_the_same_rows(tmp_path: Path) -> None:
    assert found(tmp_path, ROWS[:160], ROWS[120:], ROWS[:120]) == 0.5
    assert found(tmp_path, ROWS[:160], ROWS[160:], ROWS[:160]) == 0, "as it was"


@pytest.mark.parametrize(
    "changed",
    [
        [{**row, "id": float(row["id"])} for row in ROWS],
        [{**row, "new": 1} for row in ROWS],
        [{name: value for name, value in row.items() if name != "size"} for row in ROWS],
        ROWS[::-1],
    ],
)
def test_rows_are_known_again_by_the_columns_that_both_have(tmp_path: Path, changed: Rows) -> None:
    """By a hash of the record, a column that comes or goes splits all rows anew."""
    assert found(tmp_path, ROWS[:100], changed) == 0.5


def test_columns_that_change_their_type(tmp_path: Path) -> None:
    """Whole numbers are compared as such, and a column that becomes text with no other one."""
    times = [{"time": 1_700_000_000 + n, "label": 1} for n in range(200)]
    assert found(tmp_path, times[:100], times[100:]) == 0
    texts = [{**row, "id": str(row["id"])} for row in ROWS]
    assert found(tmp_path, ROWS[:100], texts) == 0.5


def test_equal_rows_count_for_both_models(tmp_path: Path) -> None:
    """In a table of a few categories most rows come up again, in whatever split."""
    assert found(tmp_path, ALIKE[:100], ALIKE[100:], ALIKE[:100]) == 0
    assert found(tmp_path, ALIKE[:100], ALIKE[100:]) == 1


def test_what_both_have_learnt_from_is_not_read_again(tmp_path: Path) -> None:
    """As in windows of spans, of which each was split once."""
    older, both = read(tmp_path, ROWS[:50]), read(tmp_path, ROWS[100:160], ROWS[160:])
    assert find_train_overlap([both], "eval", [older, both], [both]).share == 0
    now = read(tmp_path, ROWS[60:70], ROWS[40:60])
    assert find_train_overlap([now], "eval", [older, both], [both, now]).share == 0.5


def test_nothing_is_known_of_examples_that_were_deleted(tmp_path: Path) -> None:
    now, gone = read(tmp_path, [], ROWS), standard_artifacts.Examples()
    gone.id, gone.uri, gone.split_names = next(numbers), str(tmp_path / "gone"), now.split_names
    assert find_train_overlap([now], "eval", [gone], [now]).share == 0
    assert find_train_overlap([now], "eval", [], [now]).share == 0
    assert find_train_overlap([now], "eval", [read(tmp_path)], [now]).share == 0


def test_of_very_many_files_some_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt, now = read(tmp_path, ROWS[:100], files=20), read(tmp_path, [], ROWS)
    monkeypatch.setattr(train_overlap, "MAX_TRAINING_BYTES", 2_000)
    assert find_train_overlap([now], "eval", [learnt], [now]).share == pytest.approx(0.5, abs=0.1)


def test_the_more_rows_the_less_may_be_known_of_them() -> None:
    shares = [(0.04, 500), (0.06, 500), (0.015, 10_000), (0.017, 10_000), (0.0, 0)]
    found = [TrainOverlap(*known).exceeds_limit for known in shares]
    assert found == [False, True, False, True, False]


def test_weights_that_know_the_eval_rows_are_not_judged_by_them(tmp_path: Path) -> None:
    """By a warm start the new model itself has learnt from them."""
    now = read(tmp_path, ROWS[100:], ROWS[:100])
    inputs = {
        specs.EXAMPLES_KEY: [now],
        specs.BASELINE_MODEL_KEY: [standard_artifacts.Model()],
        BASELINE_EXAMPLES_KEY: [read(tmp_path, ROWS[:80])],
        TRAINING_EXAMPLES_KEY: [now],
    }
    properties = {specs.EXAMPLE_SPLITS_KEY: json.dumps(["eval"]), WARM_START_KEY: 1}
    with pytest.raises(DataError, match=r"trained on 80% .* --set schedule\.warm_start=false"):
        Executor().Do(inputs, {}, properties)
