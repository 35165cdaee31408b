"""Schemas changed so that data keeps them: what changes, and what stays as it was written."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.column_types.choice import Choice, annotate, read_choices
from components.example_validator.anomalies import contradicted_columns
from components.schema_gen.files import edit_schema
from components.schema_gen.inference import accept_data, infer_schema
from trainer_module.settings import Task

ROWS: dict[str, list[Any]] = {
    "age": [20.0, 30.5, 40.0, 50.0],
    "zip": [7, 12, 7, 99],
    "plan": ["gold", "basic"] * 2,
    "label": ["no", "yes"] * 2,
}


def statistics(**columns: Any) -> statistics_pb2.DatasetFeatureStatisticsList:
    changed = {name: values for name, values in (ROWS | columns).items() if values is not None}
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(changed))


@pytest.fixture
def schema() -> schema_pb2.Schema:
    schema = infer_schema([statistics()], "label", Task.BINARY, [])
    tfdv.get_feature(schema, "age").float_domain.min = 18
    return schema


def accept(schema: schema_pb2.Schema, *splits: Any, columns: Any = None) -> schema_pb2.Schema:
    columns = columns or contradicted_columns(schema, splits)
    return accept_data(schema, splits, columns, "label", Task.BINARY, [])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("age", [None, 21.0] * 2),
        ("age", [None] * 4),
        ("age", [17.0] * 4),
        ("age", ["old", "young"] * 2),
        ("age", None),
        ("zip", [0.5] * 4),
        ("plan", ["gold", "tin"] * 2),
        ("plan", [1] * 4),
        ("plan", [b"\xff", b"gold"] * 2),
        ("label", ["no", "maybe"] * 2),
        ("new", ["a", "b"] * 2),
    ],
)
def test_what_is_accepted_is_right_from_then_on(
    column: str, values: list[Any] | None, schema: schema_pb2.Schema
) -> None:
    now = statistics(**{column: values})
    for splits in ([now], [now, now]):
        assert contradicted_columns(schema, splits) == [column]
        accepted = accept(schema, *splits)
        assert contradicted_columns(accepted, splits) == []
        others = [f for f in schema.feature if f.name != column]
        assert [f for f in accepted.feature if f.name != column] == others


def test_a_value_that_is_new_in_one_split_alone(schema: schema_pb2.Schema) -> None:
    splits = [statistics(), statistics(plan=["tin"] * 4, age=[None] * 4)]
    accepted = accept(schema, *splits)
    assert contradicted_columns(accepted, splits) == []
    assert tfdv.get_domain(accepted, "plan").value == ["basic", "gold", "tin"]


def test_accepted_gaps_may_be_of_any_share(schema: schema_pb2.Schema) -> None:
    accepted = accept(schema, statistics(age=[20.0, 30.0, 40.0, None]))
    assert contradicted_columns(accepted, [statistics(age=[None, None, None, 20.0])]) == []
    assert contradicted_columns(accepted, [statistics(age=[None] * 4)]) == []
    assert contradicted_columns(accepted, [statistics(age=[17.0] * 4)]) == ["age"]


def test_one_column_alone_can_be_accepted(schema: schema_pb2.Schema) -> None:
    now = statistics(age=[17.0] * 4, plan=["tin"] * 4)
    accepted = accept(schema, now, columns=["plan"])
    assert contradicted_columns(accepted, [now]) == ["age"]


def test_text_that_does_not_change_stays_as_it_is_written() -> None:
    text = """# Ours.
feature { name: "age" type: FLOAT }  # In years, { not months.
feature {
  name: 'label'  # "yes" or "no"
  type: BYTES
  domain: "label"
}
feature { name: "gone" type: INT }
string_domain { name: "label" value: "no" value: "yes" }
default_environment: "training"
"""
    before = text_format.Parse(text, schema_pb2.Schema())
    after = schema_pb2.Schema()
    after.CopyFrom(before)
    after.string_domain[0].value.append("maybe")
    del after.feature[2]
    after.feature.add(name="new", type=schema_pb2.INT)
    edited = edit_schema(text, before, after)
    assert text_format.Parse(edited, schema_pb2.Schema()) == after
    kept = text[: text.index('feature { name: "gone"')]
    assert edited.startswith(kept)
    assert 'default_environment: "training"' in edited
    assert edit_schema(text, before, before) == text


def test_what_was_chosen_for_a_column_stays_but_for_one_of_another_type(
    schema: schema_pb2.Schema,
) -> None:
    choices = {
        name: Choice({"type": kind}, "a test")
        for name, kind in {"age": "ignore", "plan": "boolean", "zip": "categorical"}.items()
    }
    annotate(schema, choices)
    accepted = accept(schema, statistics(age=["old", "young"] * 2, plan=["gold", "tin"] * 2))
    assert read_choices(accepted) == {name: choices[name] for name in ("plan", "zip")}
    text = edit_schema(text_format.MessageToString(schema), schema, accepted)
    assert read_choices(text_format.Parse(text, schema_pb2.Schema())) == read_choices(accepted)
