"""Requests compared with the training data: what is found, and that chance is not."""

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
    batch = trips(0, 20_000)
    return OlderData(generate_statistics_in_memory(batch, tfdv.StatsOptions()), "span 2026-01-05")


def measure(served: pa.RecordBatch, trained: OlderData) -> dict[str, ColumnSkew]:
    return {one.column: one for one in measure_skew(served, DRIFT, trained)}


def test_thirty_clean_windows_alarm_nobody(trained: OlderData) -> None:
    for seed in range(1, 31):
        found = measure(trips(seed, 1000), trained)
        assert found.keys() == DRIFT.columns.keys()
        assert [one.in_words for one in found.values() if one.is_skewed] == []


@pytest.mark.parametrize("name", ["fare", "tip", "seats", "zone", "is_cash"])
def test_a_column_times_ten_is_found_in_the_first_window(trained: OlderData, name: str) -> None:
    found = measure(trips(99, 1000, **{name: lambda values: values * 10}), trained)
    assert [one.column for one in found.values() if one.is_skewed] == [name]
    assert found[name].distance > 0.15


def test_words_say_which_values_moved_from_what_to_what(trained: OlderData) -> None:
    found = measure(trips(5, 2000, company=lambda v: np.where(v == "Ace", "Zoom", v)), trained)
    assert found["company"].is_skewed
    words = found["company"].in_words
    assert words.startswith(
        "expected the shares of the values to change by at most 0.05 (infinity_norm); found 0."
    )
    assert " compared with span 2026-01-05: 'Zoom' new with 50 %, 'Ace' from 50 % to none" in words
    ten = measure(trips(6, 2000, fare=lambda v: v * 10), trained)["fare"].in_words
    assert " compared with span 2026-01-05: mean 1" in ten


def test_a_column_that_nobody_gives_any_more_is_found(trained: OlderData) -> None:
    served = trips(7, 1000)
    place = served.schema.get_field_index("fare")
    empty = served.set_column(place, "fare", no_values(1000))
    found = measure(empty, trained)["fare"]
    assert found.is_skewed
    assert found.in_words == "expected values as in span 2026-01-05; found no value in any row"


def test_what_cannot_be_compared_is_refused(trained: OlderData) -> None:
    served = trips(8, 1000)
    for columns, words in (
        ({"far": {"jensen_shannon": 0.1}}, "skew.columns.far: span 2026-01-05 has no such column"),
        ({"fare": {"infinity_norm": 0.1}}, "skew.columns.fare: infinity_norm compares shares"),
    ):
        with pytest.raises(DataError, match=words):
            measure_skew(served, Drift(columns), trained)
    with pytest.raises(DataError, match=r"skew.columns.fare: the requests have no such column"):
        measure_skew(served.drop_columns(["fare"]), DRIFT, trained)


def test_chance_grows_with_cells_and_falls_with_rows(trained: OlderData) -> None:
    few, many = (measure(trips(9, rows), trained) for rows in (100, 10_000))
    for name in ("company", "area", "fare"):
        assert many[name].chance < few[name].chance < 1
    assert few["area"].chance > few["seats"].chance
    for norm in ("infinity_norm", "jensen_shannon"):
        assert chance_distance(norm, find_column(trained.statistics, "fare"), None) == 1
