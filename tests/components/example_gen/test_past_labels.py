"""Lags and moving averages of labels, within a series, in one file and in several."""

from __future__ import annotations

import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import FileNotes
from components.example_gen.sources import make_source
from components.example_gen.sources.surveys import merge_surveys
from trainer_module.errors import DataError

Row = dict[str, Any]
FIRST = date(2023, 12, 20)


def read(
    folder: Path, lags: dict[str, Any], order_by: str = "day", data_format: str = "csv"
) -> tuple[list[Row], FileNotes]:
    """The rows of a folder's files with their past labels, and the notes on them."""
    settings = ExampleGenSettings(
        format=data_format, label="y", task="regression", order_by=order_by, lags=lags
    )
    source = make_source(settings)
    groups = source.plan(sorted(map(str, folder.iterdir())))
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    rows, notes = list[Row](), FileNotes()
    for batch in (batch for group in groups for batch in source.read(group, kinds)):
        rows += batch.rows.to_pylist()
        notes.add(batch.notes)
    return rows, notes


def write(folder: Path, header: str, lines: list[str], files: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    for number in range(files):
        text = "\n".join([header, *lines[number::files]])
        (folder / f"{number}.csv").write_text(text + "\n")
    return folder


def number(row: Row, name: str) -> float:
    return row[name][0] if row[name] else math.nan


def test_past_labels_are_those_of_the_series_in_any_order_of_rows(tmp_path):
    random = np.random.default_rng(0)
    labels = {
        (shop, FIRST + timedelta(days=int(day))): float(random.normal(5, 2))
        for shop in (b"north", b"south")
        for day in np.flatnonzero(random.random(90) < 0.8)
    }
    lines = [f"{day},{shop.decode()},{y},1" for (shop, day), y in labels.items()]
    lines += [f"{FIRST + timedelta(days=200)},west,,1"]
    random.shuffle(lines)
    folder = write(tmp_path / "data", "day,shop,y,x", lines, files=3)
    rows, _ = read(folder, {"steps": [3, 7], "means": [5], "key": "shop"})
    assert len(rows) == len(lines)
    for row in rows:
        shop, day = row["shop"][0], date.fromisoformat(row["day"][0].decode())

        def before(days: int, shop: bytes = shop, day: date = day) -> float:
            return labels.get((shop, day - timedelta(days=days)), math.nan)

        window = [y for days in range(3, 8) if not math.isnan(y := before(days))]
        mean = np.mean(window) if window else math.nan
        found = [number(row, name) for name in ("y_lag_3", "y_lag_7", "y_mean_5")]
        np.testing.assert_allclose(found, [before(3), before(7), mean], rtol=1e-6)


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (["2023-11-30", "2023-12-31", "2024-01-01", "2024-02-29"], "month"),
        (["20231130", "20231201", "20231202", "20231203"], "day"),
        (["2023-12-31T22:00", "2023-12-31T23:59", "2024-01-01T00:10", "2024-01-01T01:00"], "hour"),
    ],
)
def test_lags_are_counted_in_units_of_time(tmp_path, times, unit):
    lines = [f"{time},{index}" for index, time in enumerate(times)]
    rows, _ = read(write(tmp_path / "data", "day,y", lines), {"steps": [1], "unit": unit})
    assert [row["y_lag_1"] for row in rows] == [None, [0], [1], [2]]


@pytest.mark.parametrize(
    "last",
    [
        28,
    ],
)
def test_impossible_days_are_refused_with_their_row(tmp_path, last):
    days = [f"202602{day:02}" for day in [*range(1, last + 1), 31]]
    folder = write(tmp_path / "data", "day,y", [f"{day},1" for day in days])
    message = rf"'day' is 20260231 in row {last + 2} of "
    with pytest.raises(DataError, match=message):
        read(folder, {"steps": [1]})


@pytest.mark.parametrize(
    ("header", "lines", "lags", "place"),
    [
        (
            "day,shop,y",
            ["2024-01-01,a,1", "2024-01-01,b,2", "2024-01-02,a,3"],
            {"steps": [1]},
            "row 2 of {file} and row 3 of {file}",
        ),
        (
            "day,y",
            ["1.5,1", "2.5,2"],
            {"steps": [1]},
            "'day' is 1.5 in row 2 of {file}",
        ),
        (
            "day,y",
            ["1,1", "2,2"],
            {"steps": [1], "key": "shop"},
            "data.lags.key",
        ),
    ],
)
def test_table_without_a_series_is_refused(tmp_path, header, lines, lags, place):
    folder = write(tmp_path / "data", header, lines)
    with pytest.raises(DataError) as error:
        read(folder, lags)
    assert place.format(file=folder / "0.csv") in str(error.value)


def test_means_of_small_labels_are_exact_beside_a_series_of_large_ones(tmp_path):
    labels = {"large": 1e15, "small": 0.1}
    lines = [f"2024-01-0{day},{shop},{y}" for shop, y in labels.items() for day in range(1, 6)]
    folder = write(tmp_path / "data", "day,shop,y", lines)
    rows, _ = read(folder, {"steps": [1], "means": [3], "key": "shop"})
    assert number(rows[-1], "y_mean_3") == np.float32(0.1)
