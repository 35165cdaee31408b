"""What TFDV finds in some columns at a time is what it finds in all at once."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv

from components.compat import tfdv as ours
from components.compat.tfdv import validate_by_columns

COLUMNS = 12


def table(rows: int, shift: int = 0) -> pd.DataFrame:
    """Columns of three types, of which some differ with the shift."""
    columns = {}
    for i in range(COLUMNS):
        off = shift if i % 4 == 0 else 0
        columns[f"number_{i}"] = [float(row + i) for row in range(rows)]
        columns[f"word_{i}"] = ["ab"[row % 2] + "!" * off for row in range(rows)]
        columns[f"mixed_{i}"] = ["x" if off else row for row in range(rows)]
    if shift:
        columns["new"] = [1] * rows
        del columns["number_1"]
    return pd.DataFrame(columns)


@pytest.mark.parametrize("size", [7, 1000])
def test_anomalies_are_the_same(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    before = tfdv.generate_statistics_from_dataframe(table(60))
    now = tfdv.generate_statistics_from_dataframe(table(50, shift=1))
    schema = tfdv.infer_schema(before)
    for name in ("word_3", "word_4"):
        comparator = tfdv.get_feature(schema, name).drift_comparator
        comparator.infinity_norm.threshold = 0.01
    schema.dataset_constraints.min_examples_count = 100
    whole = ours.validation_api.validate_statistics_internal
    stock = getattr(whole, "__wrapped__", whole)
    expected = stock(now, schema, previous_span_statistics=before)
    assert len(expected.anomaly_info) > 5
    assert expected.HasField("dataset_anomaly_info")

    calls = []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return stock(*arguments, **options)

    monkeypatch.setattr(ours, "MOST_COLUMNS", size)
    vars(counted)["__signature__"] = signature(stock)
    monkeypatch.setattr(ours.validation_api, "validate_statistics_internal", counted)
    validate_by_columns()
    validate_by_columns()
    found = tfdv.validate_statistics(now, schema, previous_statistics=before)
    # A schema of 36 columns, and one that is new.
    assert len(calls) == -(-37 // size)
    assert dict(found.anomaly_info) == dict(expected.anomaly_info)
    assert found.dataset_anomaly_info == expected.dataset_anomaly_info
    assert found.baseline == expected.baseline
    drifts = {tuple(info.path.step): info for info in expected.drift_skew_info}
    assert {tuple(info.path.step): info for info in found.drift_skew_info} == drifts
    assert len(drifts) == 2
