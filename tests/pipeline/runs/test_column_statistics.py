"""What a report shows of columns, from what TFDV has counted in real rows."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2

from pipeline.records.details import ColumnDetails
from pipeline.runs.column_statistics import LAST_SPAN, MAX_COLUMNS, summarise_columns

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


def test_label_is_first_and_then_what_differs_or_is_missing_most(
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


def test_spans_of_a_window_are_counted_together() -> None:
    whole = pd.concat([TRAIN, EVAL])
    splits = {"train": [COUNTED, COUNTED_EVAL], LAST_SPAN: [COUNTED_EVAL]}
    found, _ = summarise_columns(splits, {}, ())
    columns = {column.name: column for column in found}
    train = columns["moved"].splits["train"]
    assert train.rows == 6000
    assert train.mean == pytest.approx(whole["moved"].mean(), rel=1e-4)
    assert train.std == pytest.approx(whole["moved"].std(), rel=1e-3)
    shares = dict(columns["plan"].splits["train"].top)
    assert shares["c"] == pytest.approx((whole["plan"] == "c").mean(), rel=1e-4)
    assert columns["plan"].splits[LAST_SPAN].rows == 2000


def test_column_without_a_finite_number_leaves_the_others_their_statistics() -> None:
    endless = pd.DataFrame({"endless": [np.inf] * 50, "both": [1.0, -np.inf] * 25})
    counted = statistics_of(endless.assign(moved=RANDOM.normal(0, 1, 50)))
    found, _ = summarise_columns({"train": [counted], "eval": [counted]}, {}, ())
    columns = {column.name: column.splits["train"] for column in found}
    assert columns["endless"].histogram is None
    assert columns["moved"].histogram is not None
    for column in found:  # JSON has no infinity: such a summary could not be read.
        assert ColumnDetails.model_validate_json(column.model_dump_json()) == column


def test_thousands_of_columns_are_capped_within_seconds() -> None:
    wide = statistics_pb2.DatasetFeatureStatisticsList()
    dataset = wide.datasets.add(num_examples=4000)
    for number in range(5000):
        feature = dataset.features.add()
        feature.CopyFrom(COUNTED.datasets[0].features[number % 7])
        feature.path.step[0] = f"c{number}"
    began = time.process_time()
    found, omitted = summarise_columns({"train": [wide], "eval": [wide]}, {}, ())
    assert (len(found), omitted) == (MAX_COLUMNS, 4800)
    assert all(column.splits["train"].missing == 0.9 for column in found), "the most missing"
    assert time.process_time() - began < 5
