"""Anomalies are described with their column, values, and rows of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx.types import standard_artifacts

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.planning import note_origin
from components.example_validator.anomalies import (
    Anomaly,
    SplitValidation,
    find_anomalies,
)
from components.schema_gen.inference import infer_schema
from trainer_module.settings import Task

ROWS: dict[str, list[Any]] = {
    "age": [20.0, 30.5, 40.0, 50.0] * 5,
    "zip": [7, 12, 7, 99] * 5,
    "plan": ["gold", "basic"] * 10,
    "label": [0, 1] * 10,
}
Statistics = statistics_pb2.DatasetFeatureStatisticsList


def statistics(**columns: Any) -> Statistics:
    changed = {name: values for name, values in (ROWS | columns).items() if values is not None}
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(changed))


@pytest.fixture
def schema() -> schema_pb2.Schema:
    schema = infer_schema([statistics()], "label", Task.BINARY, [])
    tfdv.get_feature(schema, "age").float_domain.min = 18
    return schema


def find(schema: schema_pb2.Schema, now: Statistics, examples: Any = None) -> list[Anomaly]:
    checked = {"train": SplitValidation(now, tfdv.validate_statistics(now, schema))}
    return find_anomalies(checked, schema, "label", [], False, examples)


@pytest.mark.parametrize(
    ("columns", "found", "severe"),
    [
        (
            {"age": [None, 21.0] * 10},
            "10 of 20 rows",
            False,
        ),
        ({"age": [17.0, 21.0] * 10}, "18; found 17", True),
        ({"age": ["old"] * 20}, "found text", True),
        ({"age": None}, "found none", True),
        ({"zip": [0.5] * 20}, "floating-point", True),
        (
            {"plan": ["gold", "tin"] * 10},
            "'tin' in 10 of 20 rows",
            False,
        ),
        ({"plan": [b"\xff", b"gold"] * 10}, "UTF-8", False),
        ({"label": [0, 5] * 10}, "found 5", True),
        (
            {"new": [1] * 20},
            "does not read",
            False,
        ),
    ],
)
def test_anomaly_has_its_column_rows_and_severity(
    columns: dict[str, Any], found: str, severe: bool, schema: schema_pb2.Schema
) -> None:
    anomaly = find(schema, statistics(**columns))[0]
    assert str(anomaly).startswith(f"train split, {next(iter(columns))}: ")
    assert found in str(anomaly)
    assert anomaly.severe is severe


def test_shape_of_an_older_schema_requires_values() -> None:
    schema = tfdv.infer_schema(statistics())
    (anomaly,) = find(schema, statistics(age=[None, 21.0] * 10))
    assert anomaly.severe
    assert "10 of 20 rows" in anomaly.description


@pytest.fixture
def examples(tmp_path: Path) -> standard_artifacts.Examples:
    """Examples of two files, the second of which has a row of odd values."""
    header = "age,zip,plan,label"
    (tmp_path / "a.csv").write_text("\n".join([header, *["20,7,gold,0"] * 10]) + "\n")
    odd = ["20,7,gold,1"] * 4 + [",7.5,tin,1", "17,7,tin,1", "20,7,gold,0"]
    (tmp_path / "b.csv").write_text("\n".join([header, *odd]) + "\n")
    settings = ExampleGenSettings(
        format="csv", label="label", task="binary", mixed_columns=("zip",)
    )
    artifact = standard_artifacts.Examples()
    note_origin(artifact, settings, [str(tmp_path / "*.csv")])
    return artifact


def test_anomaly_has_the_number_of_rows_and_the_first_row(
    examples: standard_artifacts.Examples, schema: schema_pb2.Schema, tmp_path: Path
) -> None:
    now = statistics(
        age=[None, 17.0] * 10, zip=[7.5] * 20, plan=["gold", "tin"] * 10, label=[0, 1] * 10
    )
    found = {anomaly.column: anomaly.description for anomaly in find(schema, now, examples)}
    file = tmp_path / "b.csv"
    assert f"1 of 17 rows, first in row 6 of {file};" in found["age"]
    assert f"1 of 17 rows, first in row 7 of {file} (17)" in found["age"]
    assert found["zip"].endswith(f"1 of 17 rows, first in row 6 of {file} (7.5)")
    assert found["plan"].endswith(f"2 of 17 rows, first in row 6 of {file} ('tin')")
