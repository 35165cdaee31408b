"""Columns are reviewed as they lie in the examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.column_types.choice import Choice, annotate
from components.example_validator import review
from components.example_validator.review import (
    check_leakage,
    note_unreadable,
    read_as_numbers,
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
_FEES = {3: b"free", 7: b"free", 8: b"EUR 3", 9: b"n/a"}
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
        "fee": ("bytes_list", [] if number % 5 == 0 else [_FEES.get(number, b"$%d" % number)]),
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


def test_columns_of_which_the_config_says_nothing_are_reviewed(
    examples: standard_artifacts.Examples,
) -> None:
    whole = f"has a different whole number in each of {ROWS} rows, as an identifier has"
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
    assert not read_review(anomalies).findings
    found = review_examples(examples, SCHEMA, "label", Task.BINARY, [])
    write_review(anomalies, found)
    assert read_review(anomalies) == found
    check_leakage(found)
    monkeypatch.setattr(review, "_SHOWN", 1)
    assert show_findings(found) == [
        'column "always" is 1.5 in every row; to leave it out: features: {always: {type: ignore}}',
        "2 more columns are of no use to a model, such as id",
    ]


def test_columns_of_inferred_types_are_reviewed_and_a_leak_ends_the_run(
    examples: standard_artifacts.Examples,
) -> None:
    schema = schema_pb2.Schema(
        feature=[schema_pb2.Feature(name=n, type=BYTES) for n in ("label", "alive", "paid")]
    )
    annotate(schema, {"alive": Choice({"type": "boolean"}, "'yes' and 'no' mean yes and no")})
    leak = "alone predicts the label (label leakage): AUC 1.0000"
    for declared in ([], ["paid"]):
        found = review_examples(examples, schema, "label", Task.BINARY, declared)
        assert [(f.column, f.found) for f in found.findings] == [("alive", leak)]
        with pytest.raises(DataError, match=re.escape(f'column "alive" {leak}; to leave it out')):
            check_leakage(found)
    assert not review_examples(examples, schema, "label", Task.BINARY, ["alive"]).findings


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        ([b"12.5 EUR", None, b"1,300 EUR", b"-4 EUR"], [12.5, np.nan, 1300, -4]),
        ([b"$22,500", b"$900", b"$1,050.5"], [22500, 900, 1050.5]),
        ([b"02/01/1970", None, b"31/01/1970"], [1, np.nan, 30]),
    ],
)
def test_numbers_and_days_in_text_are_read(texts: list[Any], numbers: list[float]) -> None:
    np.testing.assert_array_equal(read_as_numbers(pa.array(texts)), numbers)
    assert read_as_numbers(pa.array([b"red", b"blue"])) is None


@pytest.mark.parametrize(
    ("chosen", "exempt", "dates", "is_found"),
    [
        ({"type": "date", "format": "%d/%m/%Y"}, [], {}, True),
        (None, ["day"], {"day": None}, True),
        (None, ["day"], {"day": "%d/%m/%Y"}, True),
        (None, ["day"], {}, False),
        (None, [], None, False),
    ],
)
def test_a_random_split_of_dated_rows_is_said_and_ends_a_run_that_may_not_leak(
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
    with pytest.raises(DataError, match=r"order_by: null}; or set evaluate\.leakage: warn$"):
        check_leakage(found)


def test_texts_that_no_model_reads_are_counted(examples: standard_artifacts.Examples) -> None:
    schema = schema_pb2.Schema(feature=[schema_pb2.Feature(name="fee", type=BYTES)])
    settings = {"type": "numeric", "written": "point", "unit": "$"}
    annotate(schema, {"fee": Choice(settings, "numbers in text")})
    assert note_unreadable(examples, schema, []) == [
        "column 'fee': 3 of 96 values cannot be read and count as missing, such as 'free' (2);"
        " expected a number, or text in the format 1,234.5 $"
    ]
    assert not note_unreadable(examples, schema, ["fee"])
