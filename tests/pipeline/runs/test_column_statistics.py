"""What a report shows of columns, from what TFDV has counted in real rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2

from pipeline.records.details import ColumnDetails
from pipeline.runs.column_statistics import summarise_columns

RANDOM = np.random.default_rng(7)


def rows(count: int, shift: float = 0.0) -> pd.DataFrame:
    shares = [0.5, 0.3, 0.2] if not shift else [0.2, 0.3, 0.5]
    return pd.DataFrame(
        {
            "moved": RANDOM.normal(shift, 1, count),
            "heavy": RANDOM.pareto(1, count),
            "flag": RANDOM.integers(0, 2, count),
            "plan": RANDOM.choice(["a", "b", "c"], count, p=shares),
            "rare": [1.0 if row % 10 == 0 else None for row in range(count)],
            "note": ["<script>\u202etxt\n" + "x" * 100] * count,
            "secret": RANDOM.normal(0, 1, count),
        }
    )


def statistics_of(data: pd.DataFrame) -> statistics_pb2.DatasetFeatureStatisticsList:
    return tfdv.generate_statistics_from_dataframe(data)


TRAIN, EVAL = rows(4000), rows(2000, shift=1.0)
COUNTED, COUNTED_EVAL = statistics_of(TRAIN), statistics_of(EVAL)


@pytest.fixture(scope="module")
def columns() -> dict[str, ColumnDetails]:
    splits = {"train": [COUNTED], "eval": [COUNTED_EVAL]}
    found, omitted = summarise_columns(splits, {"plan": "label"}, {"secret"}, COUNTED)
    assert omitted == 0
    return {column.name: column for column in found}


def test_columns_are_sorted_by_difference(
    columns: dict[str, ColumnDetails],
) -> None:
    assert list(columns)[:3] == ["plan", "rare", "moved"]
    assert columns["plan"].type == "label"
    assert columns["rare"].splits["train"].missing == 0.9
    assert columns["plan"].distance == pytest.approx(0.3, abs=0.05)
    assert columns["moved"].distance == pytest.approx(0.16, abs=0.05)
    assert columns["moved"].drift == 0.0


@pytest.mark.parametrize("name", ["moved", "heavy", "flag"])
def test_histograms_of_both_splits_have_the_same_bounds_and_count_the_rows(
    name: str, columns: dict[str, ColumnDetails]
) -> None:
    first = columns[name].splits["train"].histogram
    edges = first.edges if first is not None else []
    for split, data in (("train", TRAIN), ("eval", EVAL)):
        histogram = columns[name].splits[split].histogram
        assert histogram is not None
        assert histogram.edges == edges
        inside = data[name].clip(histogram.edges[0], histogram.edges[-1])
        real, _ = np.histogram(inside, histogram.edges)
        assert sum(histogram.counts) == pytest.approx(len(data), rel=1e-3)
        wrong = np.abs(np.cumsum(histogram.counts) - np.cumsum(real)).max() / len(data)
        assert wrong < 0.1, "TFDV counts deciles"


def test_values_are_shortened_cleaned_and_kept_private(columns: dict[str, ColumnDetails]) -> None:
    ((value, share),) = columns["note"].splits["train"].top
    assert (len(value), share) == (60, 1.0)
    assert value.startswith("<script>\ufffdtxt\ufffdxx")
    private = columns["secret"].splits["train"]
    assert private.model_dump(exclude_defaults=True) == {"rows": 4000, "missing": 0.0}
