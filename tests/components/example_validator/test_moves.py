"""Changes of a column between two data sets, in figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv

from components.example_validator.distribution_changes import (
    describe_most_moved,
    describe_move,
    find_column,
)


def of(values: list[Any]) -> Any:
    """The statistics of a column."""
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame({"a": values, "other": 1}))


def move(before: list[Any], now: list[Any]) -> str:
    return describe_move(find_column(of(before), "a"), find_column(of(now), "a"))


def fruit(**counts: int) -> list[str | None]:
    names = {"none": None}
    return [names.get(name, name) for name, count in counts.items() for _ in range(count)]


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            fruit(apple=41, pear=59),
            fruit(apple=12, pear=58, melon=30),
            "'melon' new with 30 %, 'apple' from 41 % to 12 %, 'pear' from 59 % to 58 %",
        ),
        (
            fruit(apple=98, pear=2),
            fruit(apple=95, none=5),
            "'apple' from 98 % to 100 %, 'pear' from 2.0 % to none, missing 0 % to 5.0 %",
        ),
    ],
)
def test_changed_shares_of_text(before: list, now: list, words: str) -> None:
    assert move(before, now) == words


def test_changed_numbers() -> None:
    ages = np.linspace(20, 56.4, 100)
    assert move([*ages], [*(ages + 22.8)[:86], *[np.nan] * 14]) == (
        "mean 38.2 to 58.43, missing 0 % to 14 %"
    )
    assert move([*ages], [*(ages * 2 - 38.2)]) == ("standard deviation 10.61 to 21.23")


def test_new_and_missing_columns_and_changed_types() -> None:
    (numbers, text), none = (find_column(of([*one]), "a") for one in ((1, 2), "ab")), None
    assert "new" in describe_move(none, text)
    assert "missing" in describe_move(text, none)
    assert "type" in describe_move(numbers, text)
    assert find_column(of([1]), "b") is None


def rides(
    seed: int, fare: float = 10.0, cash: float = 0.5, miles: float = 1.0, **others: Any
) -> Any:
    """Statistics of rides by chance; miles have a long tail."""
    chance = np.random.default_rng(seed)
    rows = {
        "payment": np.where(chance.random(600) < cash, "cash", "card"),
        "fare": chance.normal(fare, 3, 600),
        "miles": chance.lognormal(0, 1.5, 600) * miles,
        "stuck": chance.normal(0, 1, 600),
        "tipped": (chance.random(600) < 0.4).astype(int),
    }
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(rows | others))


def test_the_columns_that_moved_most_are_named_the_furthest_first() -> None:
    found = describe_most_moved(rides(0), rides(1, fare=16.0, cash=0.7, stuck=0.0, miles=1.1))
    names = [move.split(":")[0] for move in found]
    assert names == ["stuck", "fare", "payment"]
    assert found[1].startswith("fare: mean 9.8")
    gone = np.where(np.arange(600) < 200, np.nan, 10.0)
    (gap,) = describe_most_moved(rides(0, other=10.0), rides(1, other=gone))
    assert gap == "other: missing 0 % to 33 %"
