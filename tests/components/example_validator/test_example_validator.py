"""Drift from what was trained on: what is measured, shown and stops a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2
from tfx.components.example_validator.executor import Executor as StockExecutor
from tfx.types import Channel, standard_artifacts

from components.example_validator.component import ExampleValidator, ValidationSettings
from tests.support.validations import Statistics, Validation, make_drift
from trainer_module.errors import DataError, DriftError, InternalError
from trainer_module.settings import Task

ROWS = 2000


def count(cash: float = 0.5, fare: float = 0.0, odd: int = 0, **columns: list) -> Statistics:
    """Statistics of rides: the share paid in cash, the fares' mean, payments unheard of."""
    payment = np.where(np.arange(ROWS) < cash * ROWS, "cash", "card").astype(object)
    payment[:odd] = "shells"
    return tfdv.generate_statistics_from_dataframe(
        pd.DataFrame(
            {
                "payment": payment,
                "fare": np.random.default_rng(7).normal(fare, 1, ROWS),
                "tipped": np.arange(ROWS) % 2,
                **columns,
            }
        )
    )


BEFORE = count()


@pytest.fixture
def validation(tmp_path: Path) -> Validation:
    return Validation(tmp_path, BEFORE)


def infinity_norm(threshold: float, on_drift: str = "warn") -> dict[str, Any]:
    return {"columns": {"payment": {"infinity_norm": threshold}}, "on_drift": on_drift}


def jensen_shannon(column: str, threshold: float) -> dict[str, Any]:
    return {"columns": {column: {"jensen_shannon": threshold}}}


def test_a_share_that_moved_further_than_the_infinity_norm(validation: Validation) -> None:
    assert validation.run(count(cash=0.65), infinity_norm(0.2)) == []
    (anomaly,) = validation.run(count(cash=0.65), infinity_norm(0.1))
    assert (anomaly.column, anomaly.is_drift, anomaly.severe) == ("payment", True, False)
    assert anomaly.splits == ("train",)
    assert str(anomaly) == (
        "train split, payment: expected the shares of the values to change by at most 0.1 "
        "(infinity_norm); found 0.15 compared with span 6: 'card' from 50 % to 35 %, 'cash' from "
        "50 % to 65 %"
    )


@pytest.mark.parametrize(
    ("column", "moved"), [("fare", {"fare": 2.0}), ("payment", {"cash": 0.95})]
)
def test_a_distribution_that_diverged(
    column: str, moved: dict[str, float], validation: Validation
) -> None:
    assert validation.run(count(**moved), jensen_shannon(column, 0.9)) == []
    (anomaly,) = validation.run(count(**moved), jensen_shannon(column, 0.1))
    assert (anomaly.column, anomaly.is_drift) == (column, True)
    assert "expected the distribution of the values to change by at most 0.1" in str(anomaly)
    words = {"fare": ": mean -0.03995 to 1.96", "payment": ": 'card' from 50 % to 5.0 %, 'cash'"}
    assert words[column] in str(anomaly)


def test_data_that_stayed_is_no_drift(validation: Validation) -> None:
    drift = {"columns": {"payment": {"infinity_norm": 0.001}, "fare": {"jensen_shannon": 0.001}}}
    assert validation.run(BEFORE, drift) == []


def test_only_the_train_split_is_compared(validation: Validation) -> None:
    assert validation.run(BEFORE, infinity_norm(0.1), evaluation=count(cash=0.9)) == []


def test_nothing_is_compared_without_older_statistics_or_thresholds(validation: Validation) -> None:
    moved = count(cash=0.9)
    assert validation.run(moved, infinity_norm(0.1, "fail"), is_first=True) == []
    assert validation.run(moved, drift=None) == []
    assert len(validation.run(moved, infinity_norm(0.1))) == 1


@pytest.mark.parametrize("on_anomaly", ["fail", "warn"])
def test_on_drift_fail_stops_the_run_whatever_anomalies_do(
    on_anomaly: str, validation: Validation
) -> None:
    with pytest.raises(DriftError) as caught:
        validation.run(count(cash=0.9), infinity_norm(0.1, "fail"), on_anomaly=on_anomaly)
    message = str(caught.value)
    assert message.startswith(
        "the data drifted: train split, payment: expected the shares of the values"
    )
    assert "by `scopeline spans accept SPAN --reason TEXT --config FILE`" in message
    assert "schema" not in message


@pytest.mark.parametrize("on_drift", ["warn", "retrain"])
def test_drift_of_the_label_is_shown_as_that_of_others(
    on_drift: str, validation: Validation
) -> None:
    tips = count(tipped=(np.arange(ROWS) % 10 == 0).astype(int))
    drift = {"columns": {"tipped": {"jensen_shannon": 0.01}}, "on_drift": on_drift}
    (anomaly,) = validation.run(tips, drift)
    assert (anomaly.column, anomaly.is_drift, anomaly.severe) == ("tipped", True, False)


def test_drift_is_told_from_what_else_is_odd_about_the_column(validation: Validation) -> None:
    anomalies = validation.run(count(cash=0.9, odd=20), infinity_norm(0.1))
    shown = {anomaly.is_drift: str(anomaly) for anomaly in anomalies}
    assert len(anomalies) == 2
    assert "shells" in shown[False]
    assert "expected one of 'card', 'cash'; found 'shells' in 20 of 2,000 rows" in shown[False]
    assert "expected the shares" in shown[True]
    assert "in 20 of 2,000 rows" not in shown[True]


def test_drift_and_broken_data_are_both_told(validation: Validation) -> None:
    now = count(cash=0.9, tipped=["yes", "no"] * (ROWS // 2))
    with pytest.raises(DataError) as caught:
        validation.run(now, infinity_norm(0.1, "fail"))
    message = str(caught.value)
    assert type(caught.value) is DataError, "accepting the drift would not do"
    assert "the data contradicts the schema: train split, tipped: expected whole" in message
    assert "; the data drifted: train split, payment" in message


def test_numbers_beyond_curated_bounds_stop_the_run(validation: Validation) -> None:
    tfdv.set_domain(validation.schema, "fare", schema_pb2.FloatDomain(name="fare", min=0))
    with pytest.raises(
        DataError, match=r"train and eval splits, fare: expected numbers from 0; found -3"
    ):
        validation.run(count())
    (anomaly,) = validation.run(count(), on_anomaly="warn")
    assert (anomaly.column, anomaly.severe) == ("fare", True)


def test_comparators_of_a_curated_schema_hold_for_other_columns(validation: Validation) -> None:
    comparator = tfdv.get_feature(validation.schema, "fare").drift_comparator
    comparator.jensen_shannon_divergence.threshold = 0.1
    (anomaly,) = validation.run(count(fare=2.0), infinity_norm(0.5))
    assert (anomaly.column, anomaly.is_drift) == ("fare", True)
    assert validation.run(count(fare=2.0), jensen_shannon("fare", 0.99)) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"paymnt": {"infinity_norm": 0.1}},
            "drift.columns.paymnt: the schema has no column `paymnt`; did you mean `payment`?",
        ),
        (
            {"fare": {"infinity_norm": 0.1}},
            "drift.columns.fare: infinity_norm compares shares of values in text, but the column"
            " is numeric; use jensen_shannon",
        ),
    ],
)
def test_thresholds_that_mean_nothing(
    columns: dict[str, Any], message: str, validation: Validation
) -> None:
    for is_first in (False, True):
        with pytest.raises(DataError) as caught:
            validation.run(BEFORE, {"columns": columns}, is_first=is_first)
        assert str(caught.value) == message


def test_the_component_takes_older_statistics_or_none() -> None:
    drift = make_drift(infinity_norm(0.1))

    def construct(**options: Any) -> ExampleValidator:
        return ExampleValidator(
            statistics=Channel(type=standard_artifacts.ExampleStatistics),
            schema=Channel(type=standard_artifacts.Schema),
            settings=ValidationSettings("tipped", Task.BINARY, [], drift=drift),
            **options,
        )

    assert set(construct().inputs) == {"statistics", "schema"}
    previous = Channel(type=standard_artifacts.ExampleStatistics)
    component = construct(previous_statistics=previous)
    assert component.inputs["previous_statistics"] is previous
    told = TypeAdapter(ValidationSettings).validate_json(component.exec_properties["settings"])
    assert told.drift == drift


def test_what_is_written_is_what_tfx_writes(validation: Validation, tmp_path: Path) -> None:
    validation.run(count(odd=9), on_anomaly="warn")
    ours, theirs = validation.anomalies, standard_artifacts.ExampleAnomalies()
    theirs.uri = str(tmp_path / "stock")
    output = StockExecutor().Do(
        {name: validation.inputs[name] for name in ("statistics", "schema")},
        {"anomalies": [theirs]},
        {},
    )
    assert [*output.output_artifacts] == [*validation.output.output_artifacts] == ["anomalies"]
    assert ours.split_names == theirs.split_names
    assert ours.span == theirs.span
    blessed = theirs.get_json_value_custom_property("blessed")
    assert blessed == {"train": 0, "eval": 1}
    assert ours.get_json_value_custom_property("blessed") == blessed
    for split in blessed:
        found, expected = (
            Path(artifact.uri, f"Split-{split}", "SchemaDiff.pb").read_bytes()
            for artifact in (ours, theirs)
        )
        parse = anomalies_pb2.Anomalies.FromString
        assert parse(found) == parse(expected)


def test_statistics_of_no_split_are_not_taken_for_sound(validation: Validation) -> None:
    with pytest.raises(InternalError, match="the statistics have no split"):
        validation.run(count(), splits=[])
