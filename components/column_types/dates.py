"""The detection of dates in text, and of their format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_module.features.date_formats import MONTHS, WEEKDAYS, find_format

DAYS_FORMAT = "%Y%m%d"
"""The format of days written as integers."""
DAYS = range(10_000_000, 100_000_000)
"""The range of integers with as many digits as a day."""
NEARLY_ALL = 0.9
"""The share of values that have to be in one format for a column to be dates."""
_MAY_BE_DATE = re.compile(rf"\s*(?:\d|(?:{'|'.join((*MONTHS, *WEEKDAYS))}))", re.IGNORECASE)
_DATE_LENGTHS = range(6, 61)
"""The lengths from 1/2/03 to a date with the names of its day and month, a time and a zone."""


@dataclass(frozen=True)
class Dates:
    """The format of a column of which most values are dates, and the exceptions."""

    format: str
    """The format of most values."""
    values: int
    shown: str
    """A value in the format."""
    odd: int = 0
    """The number of values that are not in the format."""
    first_odd: str = ""
    """The first value that is not in the format, and its place."""

    @property
    def are_alike(self) -> bool:
        """Whether nearly all values are in the format."""
        return self.values - self.odd >= NEARLY_ALL * self.values

    @property
    def description(self) -> str:
        """The contents of the column, in words."""
        some = f"dates such as {self.shown!r}"
        if not self.odd:
            return some
        odd = f"{self.odd:,} of {self.values:,} values do not have the format {self.format}"
        first = f"first {self.first_odd}"
        if self.are_alike:
            return f"{some}; {odd} and count as missing dates, {first}"
        return f"{some}, but {odd}, {first}: write all dates in one format"


def is_day(digits: str) -> bool:
    """Returns whether digits are a day, such as 20260131."""
    return find_format([digits]) == DAYS_FORMAT


def may_be_dates(values: Sequence[str]) -> bool:
    """Returns whether most of a few values, each by itself, are dates."""
    return sum(map(_is_date, values)) * 2 > len(values)


def _is_date(value: str) -> bool:
    """Returns whether a value is a date; excludes unlikely ones before trying the formats."""
    is_likely = len(value) in _DATE_LENGTHS and _MAY_BE_DATE.match(value)
    return bool(is_likely) and find_format([value]) is not None
