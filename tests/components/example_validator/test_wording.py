"""What is told of anomalies: in the user's words, with the rows of the files where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2
from tfx.types import standard_artifacts

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.planning import note_origin
from components.example_validator.anomalies import (
    OUT_OF_RANGE,
    UNREADABLE,
    Anomaly,
    SplitValidation,
    contradicted_columns,
    find_anomalies,
)
from components.example_validator.wording import _FINDINGS
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


def tell(schema: schema_pb2.Schema, now: Statistics, examples: Any = None) -> list[Anomaly]:
    checked = {"train": SplitValidation(now, tfdv.validate_statistics(now, schema))}
    return find_anomalies(checked, schema, "label", [], False, examples)


@pytest.mark.parametrize(
    ("columns", "told", "severe"),
    [
        (
            {"age": [None, 21.0] * 10},
            "age: expected a value in every row; found none in 10 of 20 rows",
            False,
        ),
        ({"age": [17.0, 21.0] * 10}, "age: expected numbers from 18; found 17", True),
        ({"age": ["old"] * 20}, "age: expected numbers; found text", True),
        ({"age": None}, "age: expected the column; found none in the data", True),
        ({"age": [None] * 20}, "age: expected values; found none in any of 20 rows", True),
        ({"age": [[1.0, 2.0]] * 20}, "age: expected one value in a row; found up to 2", True),
        ({"zip": [0.5] * 20}, "zip: expected whole numbers; found floating-point numbers", True),
        (
            {"plan": ["gold", "tin"] * 10},
            "plan: expected one of 'basic', 'gold'; found 'tin' in 10 of 20 rows",
            False,
        ),
        ({"plan": [1] * 20}, "plan: expected text; found whole numbers", True),
        ({"plan": [b"\xff", b"gold"] * 10}, "plan: expected text in UTF-8; found other", False),
        ({"label": [0, 5] * 10}, "label: expected whole numbers from 0 to 1; found 5", True),
        (
            {"new": [1] * 20},
            "new: expected no column of this name; found one in the data, which the model does not"
            " read",
            False,
        ),
    ],
)
def test_what_was_expected_and_what_was_found(
    columns: dict[str, Any], told: str, severe: bool, schema: schema_pb2.Schema
) -> None:
    anomaly = tell(schema, statistics(**columns))[0]
    assert str(anomaly).startswith(f"train split, {told}")
    assert anomaly.severe is severe


def test_a_shape_of_an_older_schema_is_told_as_a_missing_value() -> None:
    schema = tfdv.infer_schema(statistics())
    (anomaly,) = tell(schema, statistics(age=[None, 21.0] * 10))
    assert (anomaly.description, anomaly.severe) == (
        "expected a value in every row; found none in 10 of 20 rows",
        True,
    )


def test_a_column_that_older_schemas_let_be_empty_may_be_missing() -> None:
    """They were inferred from features of a type, but without a value."""
    values = pa.array([[1.0], [], [2.0]], pa.large_list(pa.float32()))
    label = pa.array([[0], [1], [0]], pa.large_list(pa.int64()))
    older = tfdv.infer_schema(
        generate_statistics_in_memory(pa.record_batch({"age": values, "label": label}))
    )
    now = tfdv.generate_statistics_from_dataframe(
        pd.DataFrame({"age": [None, 2.5], "label": [0, 1]})
    )
    assert tfdv.validate_statistics(now, older).anomaly_info
    assert tell(older, now) == []
    assert contradicted_columns(older, [now]) == []


def test_what_is_severe_is_told_in_words() -> None:
    told = {kind for _, kinds in _FINDINGS for kind in kinds}
    rest = (UNREADABLE | OUT_OF_RANGE) - told
    names = {anomalies_pb2.AnomalyInfo.Type.Name(kind) for kind in rest}
    assert names == {"INVALID_SCHEMA_SPECIFICATION"}


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


def test_rows_are_counted_and_the_first_is_named(
    examples: standard_artifacts.Examples, schema: schema_pb2.Schema, tmp_path: Path
) -> None:
    now = statistics(
        age=[None, 17.0] * 10, zip=[7.5] * 20, plan=["gold", "tin"] * 10, label=[0, 1] * 10
    )
    told = {anomaly.column: anomaly.description for anomaly in tell(schema, now, examples)}
    file = tmp_path / "b.csv"
    assert told["age"] == (
        f"expected a value in every row; found none in 1 of 17 rows, first in row 6 of {file}; "
        f"expected numbers from 18; found 17 in 1 of 17 rows, first in row 7 of {file} (17)"
    )
    assert told["zip"].endswith(f"numbers in 1 of 17 rows, first in row 6 of {file} (7.5)")
    assert told["plan"].endswith(f"'tin' in 2 of 17 rows, first in row 6 of {file} ('tin')")


def test_files_that_are_gone_leave_what_the_statistics_say(
    examples: standard_artifacts.Examples, schema: schema_pb2.Schema, tmp_path: Path
) -> None:
    for file in tmp_path.glob("*.csv"):
        file.unlink()
    (anomaly,) = tell(schema, statistics(plan=["gold", "tin"] * 10), examples)
    assert anomaly.description.endswith("found 'tin' in 10 of 20 rows")
