"""What the data stage decides does not depend on the order of the rows, nor on their files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

from components import examples_reader
from components.column_types.choice import read_choices
from components.column_types.facts import count_columns
from components.example_gen.columns.encoded import single_values
from components.example_validator.review import review_examples
from components.examples_reader import read_columns, read_spread
from components.row_counts import write_row_counts
from components.schema_gen.component import Executor as SchemaExecutor
from components.schema_gen.inference import infer_schema
from components.statistics_gen.component import add_values
from components.tfrecords import open_writer, write_all
from trainer_module.data.order import spread_rows
from trainer_module.settings import Task

ROWS = 3_000
STATISTICS = "statistics/Split-train/FeatureStats.pb"
Arranged = tuple[standard_artifacts.Examples, standard_artifacts.ExampleStatistics]


def table() -> pd.DataFrame:
    """Columns whose types a part of the rows would tell wrongly."""
    rng, rows = np.random.default_rng(3), np.arange(ROWS)
    label = rng.random(ROWS) < 0.3
    return pd.DataFrame(
        {
            "region": np.array(["north", "south", "west"])[rows * 3 // ROWS],
            "step": rows // 1_500,
            "number": rows + 5_000,
            "answer": np.where(rows < ROWS - 3, np.where(rows % 2, "yes", "no"), "unknown"),
            "nearly": np.where(rows == 7, 2.0, 1.0),
            "gap": np.where(rows == ROWS - 1, np.nan, 4.0),
            "order": [f"o{row // 4}" for row in rows],
            "review": [f"what a customer said of thing {row // 3}" for row in rows],
            "paid": np.where(label, "later", "now"),
            "price": rng.random(ROWS),
            "label": label.astype(int),
        }
    ).astype({"number": int, "nearly": np.float32, "gap": np.float32, "price": np.float32})


def batch_of(rows: pd.DataFrame) -> pa.RecordBatch:
    columns = {name: pa.array(rows[name], from_pandas=True) for name in rows}
    return pa.RecordBatch.from_pydict(
        {
            name: single_values(v.cast(pa.binary()) if pa.types.is_string(v.type) else v)
            for name, v in columns.items()
        }
    )


def examples_of(folder: Path, files: Sequence[pd.DataFrame]) -> standard_artifacts.Examples:
    """An artifact with a train split of some files."""
    examples, counts = standard_artifacts.Examples(), {}
    examples.uri, examples.split_names = str(folder), artifact_utils.encode_split_names(["train"])
    folder.joinpath("Split-train").mkdir(parents=True)
    for number, frame in enumerate(files):
        name = f"Split-train/data-{number:05d}.gz"
        with open_writer(str(folder / name)) as writer:
            write_all(writer, RecordBatchToExamplesEncoder().encode(batch_of(frame)))
        counts[name] = len(frame)
    write_row_counts(examples.uri, counts)
    return examples


def arrange(folder: Path, files: Sequence[pd.DataFrame]) -> Arranged:
    """The examples of some files, and the statistics of all rows."""
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(folder / "statistics")
    statistics.split_names = artifact_utils.encode_split_names(["train"])
    folder.joinpath("statistics/Split-train").mkdir(parents=True)
    found = generate_statistics_in_memory(batch_of(pd.concat(files)))
    folder.joinpath(STATISTICS).write_bytes(found.SerializeToString())
    return examples_of(folder / "examples", files), statistics


@pytest.fixture(scope="module")
def arrangements(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Arranged]:
    rows = table()
    shuffled = rows.sample(frac=1, random_state=1)
    by_label = rows.sort_values("label", kind="stable")
    files = {
        "as written": [rows],
        "shuffled, in three files": [shuffled[i::3] for i in range(3)],
        "by label, in twenty files": [by_label[i : i + 150] for i in range(0, ROWS, 150)],
    }
    return {name: arrange(tmp_path_factory.mktemp("data"), of) for name, of in files.items()}


def decide(arranged: Arranged) -> tuple[schema_pb2.Schema, list[tuple[str, str]]]:
    """The inferred schema, and what the review of columns says."""
    examples, statistics = arranged
    schema = standard_artifacts.Schema()
    schema.uri = f"{statistics.uri}/schema"
    Path(schema.uri).mkdir(exist_ok=True)
    kept = Path(schema.uri, "kept.pbtxt")
    kept.unlink(missing_ok=True)
    properties: dict[str, Any] = {"curated": "", "kept": str(kept), "label": "label"}
    properties |= {"task": "binary", "images": "[]", "names": "[]", "unsized": "[]"}
    properties["aside"] = json.dumps(["label"])
    inputs = {"statistics": [statistics], "examples": [examples]}
    SchemaExecutor().Do(inputs, {"schema": [schema]}, properties)
    found = tfdv.load_schema_text(f"{schema.uri}/schema.pbtxt")
    counts = count_columns(tfdv.load_stats_binary(f"{statistics.uri}/Split-train/FeatureStats.pb"))
    review = review_examples(examples, found, "label", Task.BINARY, [], counts=counts)
    return found, [(finding.column, finding.found) for finding in review.findings]


EXPECTED = {
    "region": "categorical",
    "step": "boolean",
    "number": "ignore",
    "answer": "categorical",
    "nearly": "numeric",
    "gap": "numeric",
    "order": "categorical",
    "review": "categorical",
    "paid": "categorical",
    "price": "numeric",
}


@pytest.mark.slow
def test_types_do_not_depend_on_the_order_of_rows(arrangements: dict[str, Arranged]) -> None:
    first, *others = (decide(arranged) for arranged in arrangements.values())
    assert {name: choice.type for name, choice in read_choices(first[0]).items()} == EXPECTED
    assert [column for column, _ in first[1]] == ["paid"]
    assert all(other == first for other in others)


@pytest.mark.slow
def test_types_by_a_sample_do_not_depend_on_the_order_of_rows(
    arrangements: dict[str, Arranged], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples_reader, "_MAX_ROWS", 600)
    for name, arranged in arrangements.items():
        schema, findings = decide(arranged)
        found = {column: choice.type for column, choice in read_choices(schema).items()}
        assert found == EXPECTED, name
        assert [column for column, _ in findings] == ["paid"], name


@pytest.mark.slow
def test_sample_is_spread_over_all_files(tmp_path: Path) -> None:
    # Of two rows in turn a sample of every n-th has one kind alone.
    rows = pd.DataFrame({"place": np.arange(1_000), "odd": np.arange(1_000) % 2})
    examples = examples_of(tmp_path / "a", [rows[:10], rows[10:10], rows[10:400], rows[400:]])
    files = sorted(map(str, (tmp_path / "a/Split-train").iterdir()))
    features = [schema_pb2.Feature(name=name, type=schema_pb2.INT) for name in rows]
    spread = np.concatenate([*read_spread(files, 100)])
    assert len(spread) == 100
    every = pa.concat_arrays(
        [b.column("place").flatten() for b in read_columns([examples], "train", features)]
    )
    np.testing.assert_array_equal(every, rows["place"])
    Path(tmp_path, "a/rows.json").unlink()
    np.testing.assert_array_equal(np.concatenate([*read_spread(files, 100)]), spread)
    places = spread_rows(1_000, 100)
    assert 30 < np.count_nonzero(places % 2) < 70
    np.testing.assert_array_equal(places // 10, np.arange(100))
    np.testing.assert_array_equal(spread_rows(7, 9), np.arange(7))
    assert not list(read_spread([], 5))
    assert not len(spread_rows(0, 5))


def test_the_statistics_have_every_class_of_the_label(tmp_path: Path) -> None:
    classes = [f"c{number:04d}" for number in range(1_500)]
    rows = pd.DataFrame({"label": classes + classes[:700], "number": 1})
    examples, _ = arrange(tmp_path, [rows])
    found = tfdv.load_stats_binary(str(tmp_path / STATISTICS))
    assert not add_values(found, [examples], "train", "number")
    assert add_values(found, [examples], "train", "label")
    assert not add_values(found, [examples], "train", "label")
    label = tfdv.get_feature_stats(found.datasets[0], tfdv.FeaturePath(["label"]))
    buckets = label.string_stats.rank_histogram.buckets
    assert [bucket.label for bucket in buckets] == classes
    assert [bucket.sample_count for bucket in buckets] == [2] * 700 + [1] * 800
    schema = infer_schema([found], "label", Task.MULTICLASS, [])
    assert not tfdv.validate_statistics(found, schema).anomaly_info
    tfdv.get_domain(schema, "label").value.remove("c1499")
    (anomaly,) = tfdv.validate_statistics(found, schema).anomaly_info.values()
    assert "c1499" in anomaly.description
