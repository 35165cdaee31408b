"""The format of a column of dates is found, or is ambiguous."""

from __future__ import annotations

import pytest

from trainer_module.features.date import DateFeature
from trainer_module.features.date_formats import Form, find_format


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2024-01-05", "", "2024-02-29"], "%Y-%m-%d"),
        (["2024-01-05T18:30:05.25Z", "2024-01-05 06:30:00+01:00"], "%Y-%m-%d %H:%M"),
        (["12/31/2024 6:30 PM", "1/2/2024 12:00 a.m."], "%m/%d/%Y %H:%M"),
        (["1/2/2024", "31/12/2024"], "%d/%m/%Y"),
        (["1/2/2024", "2/2/2024"], "%m/%d/%Y"),
        (["01/01/2024", "01/02/2024", "01/11/2023"], "%d/%m/%Y"),
        (["20241231", "20240101"], "%Y%m%d"),
        (["5 Jan 2024", "12 september 2023"], "%d %b %Y"),
        (["05-MAY-2024"], "%d-%b-%Y"),
        (["2017-01-26 00:07:13 CET", "2017-08-26 00:07:13 CEST"], "%Y-%m-%d %H:%M"),
        (["Thu, 26 Jan 2017 00:07:13 GMT", "Wed, 1 Feb 2017 10:07:13 +0100"], "%d %b %Y %H:%M"),
        (["Thursday, January 26, 2017 at 1:00"], None),
        (["10/Oct/2000:13:55:36 -0700"], "%d/%b/%Y %H:%M"),
        (["02.09.14", "31.12.13"], "%d.%m.%y"),
        (["05/2014"], "%m/%Y"),
        (["2024-02-30"], None),
        (["2024-01-05", "05/01/2024"], None),
        (["2024-01-05", "soon"], None),
        (["12345678"], None),
        (["1.10.22"], None),
        ([], None),
    ],
)
def test_a_format_is_found(values: list[str], expected: str | None) -> None:
    assert find_format(values) == expected


@pytest.mark.parametrize(
    ("date_format", "message"),
    [("%d/%q/%Y", "'%q'"), ("%Y %m %m %d", r"a format has one year \(%Y or %y\), one month")],
)
def test_a_format_that_cannot_be_read(date_format: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Form.parse(date_format)


@pytest.mark.parametrize("tail", ["", " %H:%M", "T%H:%M:%S.%fZ", " %I:%M %p", ", %H:%M%z"])
def test_a_time_ends_a_format(tail: str) -> None:
    form = Form.parse(f"%d. %B %Y{tail}")
    assert (form.layout, form.has_time) == ("%d. %b %Y", bool(tail))


def test_each_number_of_a_date_has_a_name() -> None:
    feature = DateFeature(type="date", parts=["age", "weekday", "month"])
    weekdays = [f"due[{day}]" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")]
    expected = ["due[age]", *weekdays, "due[month sin]", "due[month cos]"]
    assert list(feature.value_names("due")) == expected
