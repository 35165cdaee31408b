"""Dates are the days that Python's calendar has for them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import tensorflow as tf

from trainer_module.features import calendar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(values: list[str], date_format: str) -> list[float]:
    """Days since 1970."""
    columns = {"when": tf.constant([[value] for value in values])}
    return calendar.read_texts(columns, {"when": date_format})["when"].numpy()[:, 0].tolist()


@pytest.mark.parametrize(
    ("date_format", "time_format"),
    [
        ("%Y-%m-%d", "T%H:%M:%S.%f"),
        ("%B %d, %Y", " %H:%M"),
        ("%d.%m.%y", ""),
        ("%a, %d %b %Y", " %I:%M:%S %p"),
    ],
)
def test_days_are_those_of_python(date_format: str, time_format: str) -> None:
    generator = random.Random(7)  # noqa: S311
    first = 1970 if date_format.endswith("y") else 1601
    span = (2068 - first) * 365
    times = [datetime(first, 1, 1) + timedelta(generator.uniform(0, span)) for _ in range(100)] + [
        datetime(2000, 2, 29),
        datetime(1999, 12, 31),
    ]
    texts = [time.strftime(date_format + time_format) for time in times]
    expected = [
        datetime.strptime(text, date_format + time_format).replace(tzinfo=UTC) for text in texts
    ]
    days = [(time - EPOCH) / timedelta(days=1) for time in expected]
    np.testing.assert_allclose(read(texts, date_format + time_format), days, rtol=0, atol=1e-8)


def test_zones_are_brought_to_utc() -> None:
    texts = ["2024-01-05T18:30Z", "2024-01-05 20:30+02:00", "2024-01-05 17:00 -0130"]
    assert len(set(read(texts, "%Y-%m-%d"))) == 1


def test_other_notations_of_a_time_are_the_same_time() -> None:
    texts = [
        *("2024-01-05 18:30:05.250", "2024-01-05 18:30:05,250", "2024-01-05 18:30:05.25 +0000 UTC"),
        *("2024-01-05, 6:30:05.25\u202fPM", "Fri, 2024-01-05\u00a018:30:05.250 GMT"),
        *("2024-01-05 18:30:05.25 CET", "2024-01-05T19:30:05.25+0100 (CET)"),
    ]
    assert len(set(read(texts, "%Y-%m-%d"))) == 1


def test_texts_that_are_no_dates_are_missing() -> None:
    texts = ["", "soon", "2024-02-30", "2024-13-01", "05/01/2024", "2024-01-05x", "1;2"]
    assert np.isnan(read(texts, "%Y-%m-%d")).all()


def test_numbers_count_since_1970() -> None:
    column = tf.constant([[1704457800], [tf.int64.min]], tf.int64)
    days = calendar.read_numbers("when", column, 86400.0)[:, 0].numpy()
    assert days[0] == (datetime(2024, 1, 5, 12, 30, tzinfo=UTC) - EPOCH).total_seconds() / 86400
    assert np.isnan(days[1])


def test_parts_are_those_of_python() -> None:
    times = [datetime(1899, 12, 31, tzinfo=UTC) + timedelta(days=97.3 * n) for n in range(600)]
    days = tf.constant([[(time - EPOCH) / timedelta(days=1)] for time in times], tf.float64)
    year, parts = calendar._calendar_parts(days)
    found = np.stack([part.numpy()[:, 0] for part in parts["weekday"]], 1)
    np.testing.assert_array_equal(found, np.eye(7)[[time.weekday() for time in times]])
    np.testing.assert_array_equal(year.numpy()[:, 0], [time.year for time in times])
    turns = [(time.timetuple().tm_yday - 1) / 365.2425 for time in times]
    sine, cosine = (part.numpy()[:, 0] for part in parts["year_day"])
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * np.array(turns)), atol=1e-5)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * np.array(turns)), atol=1e-5)
