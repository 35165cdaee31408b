"""Columns of the examples are reviewed for leaks and uselessness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.column_types.choice import Choice, annotate
from components.example_validator.review import (
    check_leakage,
    read_review,
    review_examples,
    show_findings,
    write_review,
)
from trainer_module.errors import DataError
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
        "alive": ("bytes_list", [[b"n", b"y"][number * 7 % 10 < 4]]),
        "paid": ("bytes_list", [[b"cash", b"card"][number * 3 % 10 < 4]]),
    }


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> standard_artifacts.Examples:
    return write_examples(tmp_path_factory.mktemp("examples"), [row(n) for n in range(ROWS)])


def write_examples(
    root: Path, rows: list[dict[str, tuple[str, list[Any]]]]
) -> standard_artifacts.Examples:
    artifact = standard_artifacts.Examples()
    artifact.uri = str(root)
    artifact.split_names = artifact_utils.encode_split_names(["train"])
    folder = Path(artifact.uri, "Split-train")
    folder.mkdir()
    for shard in range(2):
        with tf.io.TFRecordWriter(str(folder / f"data-{shard}.gz"), "GZIP") as writer:
            for values_of in rows[shard::2]:
                example = tf.train.Example()
                for name, (kind, values) in values_of.items():
                    getattr(example.features.feature[name], kind).value.extend(values)
                writer.write(example.SerializeToString())
    return artifact


def found(examples: standard_artifacts.Examples, *declared: str) -> dict[str, str]:
    review = review_examples(examples, SCHEMA, "label", Task.BINARY, declared)
    return {finding.column: finding.found for finding in review.findings}


def test_undeclared_columns_are_reviewed(
    examples: standard_artifacts.Examples,
) -> None:
    assert set(found(examples)) == {"always", "id", "empty"}
    assert list(found(examples, "id", "empty")) == ["always"]


def test_leak_ends_the_run(
    examples: standard_artifacts.Examples,
) -> None:
    schema = schema_pb2.Schema(
        feature=[schema_pb2.Feature(name=n, type=BYTES) for n in ("label", "alive", "paid")]
    )
    annotate(schema, {"alive": Choice({"type": "boolean"}, "'yes' and 'no' mean yes and no")})
    for declared in ([], ["paid"]):
        found = review_examples(examples, schema, "label", Task.BINARY, declared)
        assert [f.column for f in found.findings] == ["alive"]
        with pytest.raises(DataError, match='column "alive"'):
            check_leakage(found)
    assert not review_examples(examples, schema, "label", Task.BINARY, ["alive"]).findings


@pytest.mark.parametrize(
    ("chosen", "exempt", "dates", "is_found"),
    [
        ({"type": "date", "format": "%d/%m/%Y"}, [], {}, True),
        (None, ["day"], {}, False),
    ],
)
def test_random_split_of_dated_rows_ends_the_run(
    chosen: dict[str, str] | None,
    exempt: list[str],
    dates: dict[str, str | None] | None,
    is_found: bool,
    tmp_path: Path,
) -> None:
    steps = np.random.default_rng(0).normal(size=ROWS)
    days = np.datetime64("2020-01-01") + np.arange(ROWS)
    rows: list[dict[str, tuple[str, list[Any]]]] = [
        {
            "day": ("bytes_list", [day.item().strftime("%d/%m/%Y").encode()]),
            "size": ("float_list", [float(number % 7)]),
            "label": ("float_list", [height]),
        }
        for number, (day, height) in enumerate(zip(days, np.cumsum(steps), strict=True))
    ]
    types = {"day": BYTES, "size": FLOAT, "label": FLOAT}
    schema = schema_pb2.Schema(
        feature=[schema_pb2.Feature(name=n, type=kind) for n, kind in types.items()]
    )
    annotate(schema, {"day": Choice(chosen, "")} if chosen else {})
    examples, artifact = write_examples(tmp_path, rows), standard_artifacts.ExampleAnomalies()
    artifact.uri = str(tmp_path)
    found = review_examples(examples, schema, "label", Task.REGRESSION, exempt, "", dates=dates)
    assert (found.split is not None) == is_found
    if found.split is None:
        return
    assert show_findings(found)[0] == found.split.found
    write_review(artifact, found)
    assert read_review(artifact) == found
    with pytest.raises(DataError, match=r"evaluate\.leakage: warn$"):
        check_leakage(found)
