"""Skew: requests compared with the training data."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory

from components.example_gen.columns.encoded import no_values
from components.example_validator.distribution_changes import find_column
from components.example_validator.drift import (
    ColumnSkew,
    Drift,
    OlderData,
    chance_distance,
    measure_skew,
)
from tests.support.trips import trips
from trainer_module.errors import DataError

DRIFT = Drift(
    {
        "fare": {"jensen_shannon": 0.1},
        "tip": {"jensen_shannon": 0.02},
        "seats": {"jensen_shannon": 0.1},
        "company": {"infinity_norm": 0.05},
        "area": {"jensen_shannon": 0.05},
        "zone": {"jensen_shannon": 0.05},
        "is_cash": {"jensen_shannon": 0.05},
        "rare": {"jensen_shannon": 0.05},
    }
)


@pytest.fixture(scope="module")
def trained() -> OlderData:
    batch = trips(0, 10_000)
    return OlderData(generate_statistics_in_memory(batch, tfdv.StatsOptions()), "span 2026-01-05")


def measure(served: pa.RecordBatch, trained: OlderData) -> dict[str, ColumnSkew]:
    return {one.column: one for one in measure_skew(served, DRIFT, trained)}


def test_clean_windows_have_no_skew(trained: OlderData) -> None:
    for seed in range(1, 6):
        found = measure(trips(seed, 1000), trained)
        assert found.keys() == DRIFT.columns.keys()
        assert [one.in_words for one in found.values() if one.is_skewed] == []


@pytest.mark.parametrize("name", ["fare", "tip", "seats", "zone", "is_cash"])
def test_column_times_ten_is_skewed_in_the_first_window(trained: OlderData, name: str) -> None:
    found = measure(trips(99, 1000, **{name: lambda values: values * 10}), trained)
    assert [one.column for one in found.values() if one.is_skewed] == [name]
    assert found[name].distance > 0.15


def test_description_has_the_values_that_moved(trained: OlderData) -> None:
    found = measure(trips(5, 2000, company=lambda v: np.where(v == "Ace", "Zoom", v)), trained)
    assert found["company"].is_skewed
    words = found["company"].in_words
    assert "0.05 (infinity_norm)" in words
    assert "'Zoom' new with 50 %" in words
    assert "to none" in words


def test_column_without_values_is_skewed(trained: OlderData) -> None:
    served = trips(7, 1000)
    place = served.schema.get_field_index("fare")
    empty = served.set_column(place, "fare", no_values(1000))
    found = measure(empty, trained)["fare"]
    assert found.is_skewed
    assert "2026-01-05" in found.in_words


def test_thresholds_of_unknown_columns_or_types_are_refused(trained: OlderData) -> None:
    served = trips(8, 1000)
    for columns, words in (
        ({"far": {"jensen_shannon": 0.1}}, "skew.columns.far"),
        ({"fare": {"infinity_norm": 0.1}}, "skew.columns.fare"),
    ):
        with pytest.raises(DataError, match=words):
            measure_skew(served, Drift(columns), trained)
    with pytest.raises(DataError, match=r"skew\.columns\.fare"):
        measure_skew(served.drop_columns(["fare"]), DRIFT, trained)


def test_chance_distance_grows_with_cells_and_falls_with_rows(trained: OlderData) -> None:
    few, many = (measure(trips(9, rows), trained) for rows in (100, 10_000))
    for name in ("company", "area", "fare"):
        assert many[name].chance < few[name].chance < 1
    assert few["area"].chance > few["seats"].chance
    for norm in ("infinity_norm", "jensen_shannon"):
        assert chance_distance(norm, find_column(trained.statistics, "fare"), None) == 1
