"""The detection of dates in text, and of their format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_module.features.date_formats import MONTHS, WEEKDAYS, find_format

DAYS_FORMAT = "%Y%m%d"
DAYS = range(10_000_000, 100_000_000)
"""The range of integers that have eight digits, like a day."""
MIN_DATE_SHARE = 0.9
"""The minimum share of values that are in one format, for a column to be dates."""
_MAY_BE_DATE = re.compile(rf"\s*(?:\d|(?:{'|'.join((*MONTHS, *WEEKDAYS))}))", re.IGNORECASE)
_DATE_LENGTHS = range(6, 61)
"""The possible lengths of a date: the shortest dates are like 1/2/03, and the longest ones have the
names of the day and the month, a time and a zone."""


@dataclass(frozen=True)
class Dates:
    """The format of a column in which most values are dates, and the values in other formats."""

    format: str
    """The format of most values."""
    values: int
    shown: str
    """An example of a value in the format."""
    mismatches: int = 0
    """The number of values that are not in the format."""
    first_mismatch: str = ""
    """The first value that is not in the format, with its row and file."""

    @property
    def are_alike(self) -> bool:
        """Whether at least the share `MIN_DATE_SHARE` of the values is in the format."""
        return self.values - self.mismatches >= MIN_DATE_SHARE * self.values

    @property
    def description(self) -> str:
        """A description of the column's values for messages."""
        dates = f"dates such as {self.shown!r}"
        if not self.mismatches:
            return dates
        others = (
            f"{self.mismatches:,} of {self.values:,} values do not have the format {self.format}"
        )
        first = f"the first is {self.first_mismatch}"
        if self.are_alike:
            return f"{dates}; {others} and count as missing dates, {first}"
        return f"{dates}, but {others}, {first}: write all dates in one format"


def is_day(digits: str) -> bool:
    """Returns whether digits are a day, such as 20260131."""
    return find_format([digits]) == DAYS_FORMAT


def may_be_dates(values: Sequence[str]) -> bool:
    """Returns whether more than half of the values are dates. Their formats may differ."""
    return sum(map(_is_date, values)) * 2 > len(values)


def _is_date(value: str) -> bool:
    """Returns whether a value is a date. Only values that look like dates are parsed."""
    is_likely = len(value) in _DATE_LENGTHS and _MAY_BE_DATE.match(value)
    return bool(is_likely) and find_format([value]) is not None
