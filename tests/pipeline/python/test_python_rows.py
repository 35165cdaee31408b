"""Rows of Python programs become rows of JSON, whatever form and types they have."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pipeline.python.rows import like, to_rows
from trainer_module.errors import DataError

RIGHT = [
    {"fare": 1.5, "n": 2, "name": "a", "day": "2026-01-05", "tags": ["x"]},
    {"fare": None, "n": 3, "name": None, "day": "2026-01-06", "tags": []},
]


def test_every_form_gives_the_same_rows() -> None:
    days = [date(2026, 1, 5), date(2026, 1, 6)]
    columns = {
        "fare": np.array([1.5, np.nan], np.float32),
        "n": np.array([2, 3]),
        "name": ["a", None],
        "day": days,
        "tags": [np.array(["x"], object), ()],
    }
    frame = pd.DataFrame({**columns, "n": [Decimal(2), 3], "name": ["a", pd.NA]})
    rows = [{name: values[index] for name, values in columns.items()} for index in (0, 1)]
    for given in (columns, frame, rows):
        assert to_rows(given) == RIGHT


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_dates_of_numpy_are_dates_in_every_unit(unit: str) -> None:
    days = np.array(["2026-01-05T10:30", "NaT"], dtype=f"datetime64[{unit}]")
    assert to_rows({"day": days}) == [{"day": "2026-01-05 10:30:00"}, {"day": None}]
    with pytest.raises(DataError, match="of the type timedelta64, expected a number"):
        to_rows({"day": days - days})


def test_answers_have_the_form_of_the_rows() -> None:
    answers = pa.table({"value": [1.0, 2.0]})
    assert like([{}, {}], answers) == [{"value": 1.0}, {"value": 2.0}]
    assert like({"a": [1, 2]}, answers) == {"value": [1.0, 2.0]}
    frame = like(pd.DataFrame({"a": [1, 2]}, index=["x", "y"]), answers)
    assert frame.value.to_dict() == {"x": 1.0, "y": 2.0}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("row", "this is a str, expected a list of dicts, a dict of lists, or a pandas DataFrame."),
        ({"a": []}, "there is no row"),
        ({"a": [1], "b": [1, 2]}, "the columns have different numbers of rows: [1, 2]."),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the DataFrame has the column `a` twice."),
    ],
)
def test_wrong_rows_are_refused(rows, message: str) -> None:
    with pytest.raises(DataError) as raised:
        to_rows(rows)
    assert str(raised.value).startswith("rows: ")
    assert message in str(raised.value)
