"""How dates are written is found, or said to be nothing that can be read."""

from __future__ import annotations

import pytest

from trainer_module.features.date import DateFeature
from trainer_module.features.date_formats import Form, find_format


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2024-01-05", "", "2024-02-29"], "%Y-%m-%d"),
        (["2024-01-05T18:30:05.25Z", "2024-01-05 06:30:00+01:00"], "%Y-%m-%d %H:%M"),
        (["2024-01-05T00:00:00", "2024-01-06T00:00:00.000Z"], "%Y-%m-%d"),
        (["2024/1/5"], "%Y/%m/%d"),
        (["12/31/2024 6:30 PM", "1/2/2024 12:00 a.m."], "%m/%d/%Y %H:%M"),
        (["1/2/2024", "31/12/2024"], "%d/%m/%Y"),
        (["1/2/2024", "2/2/2024"], "%m/%d/%Y"),
        (["01/01/2024", "01/02/2024", "01/11/2023"], "%d/%m/%Y"),
        (["01-02-2024"], "%d-%m-%Y"),
        (["1.2.2024"], "%d.%m.%Y"),
        (["20241231", "20240101"], "%Y%m%d"),
        (["5 Jan 2024", "12 september 2023"], "%d %b %Y"),
        (["Jan 5, 2024"], "%b %d, %Y"),
        (["05-MAY-2024"], "%d-%b-%Y"),
        (["2024-01", "2023-12"], "%Y-%m"),
        (["12/31/99"], "%m/%d/%y"),
        (["2017-01-26 00:07:13 CET", "2017-08-26 00:07:13 CEST"], "%Y-%m-%d %H:%M"),
        (["2015-12-21 04:20:44,123"], "%Y-%m-%d %H:%M"),
        (["2016-02-29 03:19:04 +0000 UTC"], "%Y-%m-%d %H:%M"),
        (["Thu, 26 Jan 2017 00:07:13 GMT", "Wed, 1 Feb 2017 10:07:13 +0100"], "%d %b %Y %H:%M"),
        (["Thursday, January 26, 2017 at 1:00"], None),
        (["1/1/2023, 6:30:00\u202fPM", "1/2/2023, 6:30:00\u00a0PM"], "%m/%d/%Y %H:%M"),
        (["10/Oct/2000:13:55:36 -0700"], "%d/%b/%Y %H:%M"),
        (["22-AUG-15"], "%d-%b-%y"),
        (["02.09.14", "31.12.13"], "%d.%m.%y"),
        (["Sep-14"], "%b-%y"),
        (["Dec-2011"], "%b-%Y"),
        (["05/2014"], "%m/%Y"),
        (["2023\u2003-01-01"], None),
        (["\u0662\u0660\u0662\u0663-01-01"], None),
        (["2024-02-30"], None),
        (["2024-01-05", "05/01/2024"], None),
        (["2024-01-05", "soon"], None),
        (["12345678"], None),
        (["1.10.22"], None),
        (["", " "], None),
        ([], None),
    ],
)  # fmt: skip
def test_a_format_is_found(values: list[str], expected: str | None) -> None:
    assert find_format(values) == expected


@pytest.mark.parametrize(
    ("date_format", "message"),
    [
        ("%d/%q/%Y", "'%q' is not a part of a date; a format consists of %Y, %y, %m, %b and"),
        ("%d.%m.", r"a format has one year \(%Y or %y\), one month"),
        ("%Y %m %m %d", r"a format has one year \(%Y or %y\), one month"),
    ],
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
