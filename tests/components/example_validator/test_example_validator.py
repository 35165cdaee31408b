"""Drift from the training data and anomalies: what is measured, and what stops a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2
from tfx.components.example_validator.executor import Executor as StockExecutor
from tfx.types import standard_artifacts

from tests.support.validations import Statistics, Validation
from trainer_module.errors import DataError, DriftError

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


def test_share_beyond_the_infinity_norm_is_drift(validation: Validation) -> None:
    assert validation.run(count(cash=0.65), infinity_norm(0.2)) == []
    (anomaly,) = validation.run(count(cash=0.65), infinity_norm(0.1))
    assert (anomaly.column, anomaly.is_drift, anomaly.severe) == ("payment", True, False)
    assert anomaly.splits == ("train",)
    assert "0.1 (infinity_norm); found 0.15" in str(anomaly)
    assert "'card' from 50 % to 35 %, 'cash' from 50 % to 65 %" in str(anomaly)


@pytest.mark.parametrize(
    ("column", "moved"), [("fare", {"fare": 2.0}), ("payment", {"cash": 0.95})]
)
def test_distribution_beyond_jensen_shannon_is_drift(
    column: str, moved: dict[str, float], validation: Validation
) -> None:
    assert validation.run(count(**moved), jensen_shannon(column, 0.9)) == []
    (anomaly,) = validation.run(count(**moved), jensen_shannon(column, 0.1))
    assert (anomaly.column, anomaly.is_drift) == (column, True)
    words = {"fare": ": mean -0.03995 to 1.96", "payment": ": 'card' from 50 % to 5.0 %, 'cash'"}
    assert words[column] in str(anomaly)


def test_equal_data_is_no_drift(validation: Validation) -> None:
    drift = {"columns": {"payment": {"infinity_norm": 0.001}, "fare": {"jensen_shannon": 0.001}}}
    assert validation.run(BEFORE, drift) == []


def test_only_the_train_split_is_compared(validation: Validation) -> None:
    assert validation.run(BEFORE, infinity_norm(0.1), evaluation=count(cash=0.9)) == []


def test_nothing_is_compared_without_older_statistics_or_thresholds(validation: Validation) -> None:
    moved = count(cash=0.9)
    assert validation.run(moved, infinity_norm(0.1, "fail"), is_first=True) == []
    assert validation.run(moved, drift=None) == []
    assert len(validation.run(moved, infinity_norm(0.1))) == 1


@pytest.mark.parametrize(
    "on_anomaly",
    [
        "warn",
    ],
)
def test_on_drift_fail_stops_the_run(on_anomaly: str, validation: Validation) -> None:
    with pytest.raises(DriftError) as caught:
        validation.run(count(cash=0.9), infinity_norm(0.1, "fail"), on_anomaly=on_anomaly)
    assert "train split, payment" in str(caught.value)
    assert "scopeline spans accept" in str(caught.value)


def test_drift_and_anomaly_of_a_column_are_separate(validation: Validation) -> None:
    anomalies = validation.run(count(cash=0.9, odd=20), infinity_norm(0.1))
    shown = {anomaly.is_drift: str(anomaly) for anomaly in anomalies}
    assert len(anomalies) == 2
    assert "shells" in shown[False]
    assert "in 20 of 2,000 rows" not in shown[True]


def test_drift_and_contradictions_are_both_reported(validation: Validation) -> None:
    now = count(cash=0.9, tipped=["yes", "no"] * (ROWS // 2))
    with pytest.raises(DataError) as caught:
        validation.run(now, infinity_norm(0.1, "fail"))
    message = str(caught.value)
    assert type(caught.value) is DataError, "accepting the drift would not do"
    assert "train split, tipped" in message
    assert "train split, payment" in message


def test_numbers_beyond_curated_bounds_stop_the_run(validation: Validation) -> None:
    tfdv.set_domain(validation.schema, "fare", schema_pb2.FloatDomain(name="fare", min=0))
    with pytest.raises(DataError, match=r"train and eval splits, fare: .* from 0"):
        validation.run(count())
    (anomaly,) = validation.run(count(), on_anomaly="warn")
    assert (anomaly.column, anomaly.severe) == ("fare", True)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (
            {"paymnt": {"infinity_norm": 0.1}},
            "drift.columns.paymnt",
        ),
        (
            {"fare": {"infinity_norm": 0.1}},
            "drift.columns.fare",
        ),
    ],
)
def test_thresholds_of_unknown_columns_or_types_are_refused(
    columns: dict[str, Any], key: str, validation: Validation
) -> None:
    for is_first in (False, True):
        with pytest.raises(DataError) as caught:
            validation.run(BEFORE, {"columns": columns}, is_first=is_first)
        assert str(caught.value).startswith(key)


def test_written_anomalies_are_those_of_tfx(validation: Validation, tmp_path: Path) -> None:
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
