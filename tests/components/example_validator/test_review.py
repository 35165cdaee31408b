"""Columns are reviewed as they lie in the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.example_validator import review
from components.example_validator.review import (
    read_findings,
    review_examples,
    show_findings,
    write_findings,
)
from trainer_module.settings import Task

ROWS = 120
INT, FLOAT, BYTES = schema_pb2.INT, schema_pb2.FLOAT, schema_pb2.BYTES
TYPES = {"always": FLOAT, "id": INT, "gaps": FLOAT, "tags": BYTES, "empty": BYTES, "label": BYTES}
SCHEMA = schema_pb2.Schema(feature=[schema_pb2.Feature(name=n, type=t) for n, t in TYPES.items()])


def row(number: int) -> dict[str, tuple[str, list[Any]]]:
    return {
        "always": ("float_list", [1.5]),
        "id": ("int64_list", [number]),
        "gaps": ("float_list", [float(number % 7)] if number % 3 else []),
        "tags": ("bytes_list", [b"a", b"b"]),
        "empty": ("bytes_list", []),
        "label": ("bytes_list", [[b"no", b"yes"][number * 7 % 10 < 4]]),
    }


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> standard_artifacts.Examples:
    artifact = standard_artifacts.Examples()
    artifact.uri = str(tmp_path_factory.mktemp("examples"))
    artifact.split_names = artifact_utils.encode_split_names(["train"])
    folder = Path(artifact.uri, "Split-train")
    folder.mkdir()
    for shard in range(2):
        with tf.io.TFRecordWriter(str(folder / f"data-{shard}.gz"), "GZIP") as writer:
            for number in range(shard, ROWS, 2):
                example = tf.train.Example()
                for name, (kind, values) in row(number).items():
                    getattr(example.features.feature[name], kind).value.extend(values)
                writer.write(example.SerializeToString())
    return artifact


def found(examples: standard_artifacts.Examples, *declared: str) -> dict[str, str]:
    findings = review_examples(examples, SCHEMA, "label", Task.BINARY, declared)
    return {finding.column: finding.found for finding in findings}


def test_columns_of_which_the_config_says_nothing_are_reviewed(
    examples: standard_artifacts.Examples,
) -> None:
    whole = f"has another whole number in each of {ROWS} rows, as an identifier has"
    expected = {
        "always": "is 1.5 in every row",
        "id": whole,
        "empty": "has no value in any row",
    }
    assert found(examples) == expected
    assert list(found(examples, "id", "empty")) == ["always"]


def test_findings_are_kept_and_the_first_are_shown(
    examples: standard_artifacts.Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anomalies = standard_artifacts.ExampleAnomalies()
    anomalies.uri = str(tmp_path)
    assert read_findings(anomalies) == []
    findings = review_examples(examples, SCHEMA, "label", Task.BINARY, [])
    write_findings(anomalies, findings)
    assert read_findings(anomalies) == findings
    monkeypatch.setattr(review, "_SHOWN", 1)
    assert show_findings(findings) == [
        'column "always" is 1.5 in every row; to leave it out: features: {always: {type: ignore}}',
        "2 more columns are of no use to a model, such as id",
    ]
