"""Random splits of dated rows are found where labels move with time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.example_validator.dated_rows import (
    SplitFinding,
    class_labels,
    find_similarity,
    rank_labels,
    review_split,
)
from trainer_module.settings import Task

DAYS = 430
WEEK = np.array([0, 0.3, 0.2, 0.1, 0.4, -1.2, -1.5])


def days(count: int = DAYS, text: str = "%Y-%m-%d") -> pa.Array:
    moments = np.datetime64("2020-01-01") + np.arange(count)
    return pa.array([moment.item().strftime(text).encode() for moment in moments])


def review(
    values: pa.Array, labels: Any, name: str = "date", **options: Any
) -> SplitFinding | None:
    columns = {"x": pa.array(np.arange(len(values)) % 7), name: values}
    formats = options.pop("formats", {})
    return review_split(columns, np.asarray(labels, float), Task.REGRESSION, formats, **options)


def walk(count: int = DAYS) -> np.ndarray:
    return np.cumsum(np.random.default_rng(0).normal(size=count))


def counts(random: np.random.Generator) -> np.ndarray:
    """Of each day: a weekly season, a yearly one, and growth."""
    day = np.arange(DAYS)
    season = 800 * np.sin(2 * np.pi * day / 365) + 900 * WEEK[day % 7]
    return random.poisson(10_000 + season + day)


def drifting(random: np.random.Generator) -> np.ndarray:
    """A class that is one tenth of the first rows and six tenths of the last."""
    return random.random(5_000) < np.linspace(0.1, 0.6, 5_000)


@pytest.mark.parametrize(
    ("make", "encode", "most"),
    [
        (counts, rank_labels, 1),
        (lambda random: np.linspace(0, 3, 200) + random.normal(size=200), rank_labels, 4),
        (drifting, class_labels, 256),
    ],
)
def test_labels_that_move_with_time_are_found(
    make: Callable[[np.random.Generator], np.ndarray],
    encode: Callable[[np.ndarray], np.ndarray],
    most: int,
) -> None:
    random = np.random.default_rng(1)
    labels = make(random)
    # Those of train: four days of five.
    rows = np.flatnonzero(random.random(len(labels)) < 0.8)
    found = find_similarity({"date": rows.astype(float)}, encode(labels[rows]))
    assert found is not None
    assert (found.column, 1 <= found.dates <= most, found.correlation > 0.1) == ("date", True, True)


def independent(random: np.random.Generator, shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Dates and labels of rows whose labels have nothing to do with their dates."""
    if shape == 0:  # A few huge ones.
        return np.arange(200.0), rank_labels(random.standard_cauchy(200))
    if shape == 1:  # A rare class, ties in dates.
        return random.integers(0, 60, 400).astype(float), class_labels(random.random(400) < 0.03)
    if shape == 2:  # More rows each day, of five classes.
        dates = np.floor(np.sqrt(random.random(500)) * 100)
        return dates, class_labels(random.choice(5, 500, p=[0.6, 0.2, 0.1, 0.06, 0.04]))
    # A row for each shop and day, four of five of them, of shops that are far apart.
    shops = np.tile(random.normal(size=10) * 3, 60)
    kept = random.random(600) < 0.8
    labels = shops + random.normal(size=600)
    return np.repeat(np.arange(60.0), 10)[kept], rank_labels(labels[kept])


def test_independent_labels_are_seldom_found() -> None:
    tables = [independent(np.random.default_rng(seed), seed % 4) for seed in range(200)]
    found = [find_similarity({"date": dates}, labels) for dates, labels in tables]
    assert sum(similarity is not None for similarity in found) <= 1


def test_random_split_of_dated_rows_is_found() -> None:
    found = review(days(), walk())
    assert found is not None
    assert found.misleads
    assert 'column "date"' in found.found
    assert "{order_by: date}" in found.found
    noise = np.random.default_rng(0).normal(size=DAYS)
    assert review(days(), noise) is None
    assert review(days(), walk(), "birth_date") is None
    assert review(days(19), walk(19)) is None, "too few to split by"


@pytest.mark.parametrize(
    ("name", "values", "formats", "hint"),
    [
        ("date", days(text="%d.%m.%Y"), {}, ", with dates written as 2026-01-31"),
        ("created_at", pa.array(1.6e9 + 86_400 * np.arange(DAYS)), {}, ""),
        ("id", pa.array(np.arange(DAYS)), {"id": None}, None),
        ("time", pa.array(np.arange(DAYS)), {}, None),
    ],
)
def test_columns_that_date_the_rows(
    name: str, values: pa.Array, formats: dict[str, str | None], hint: str | None
) -> None:
    found = review(values, walk(), name, formats=formats)
    assert (found is None) == (hint is None)
    assert found is None or f"{{order_by: {name}}}{hint};" in found.found
