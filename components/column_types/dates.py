"""Whether text is dates, and how they are written, by all values of a column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_module.features.date_formats import MONTHS, WEEKDAYS, find_format

DAYS_FORMAT = "%Y%m%d"
"""Of whole numbers that are days."""
DAYS = range(10_000_000, 100_000_000)
"""Whole numbers of as many digits."""
NEARLY_ALL = 0.9
"""Share of the values that have to be written in one format for a column to be dates."""
_MAY_BE_DATE = re.compile(rf"\s*(?:\d|(?:{'|'.join((*MONTHS, *WEEKDAYS))}))", re.IGNORECASE)
_DATE_LENGTHS = range(6, 61)
"""From 1/2/03 to a date with the names of its day and its month, a time and a zone."""


@dataclass(frozen=True)
class Dates:
    """What is known of a column most of whose values are dates."""

    format: str
    """That of most values."""
    values: int
    shown: str
    """One in the format."""
    odd: int = 0
    """How many values are not written in it."""
    first_odd: str = ""
    """The first of them, and where it is."""

    @property
    def are_alike(self) -> bool:
        """Whether the format is that of nearly all values."""
        return self.values - self.odd >= NEARLY_ALL * self.values

    @property
    def description(self) -> str:
        """What the column holds."""
        some = f"dates such as {self.shown!r}"
        if not self.odd:
            return some
        odd = f"{self.odd:,} of {self.values:,} values not written as {self.format}"
        first = f"first {self.first_odd}"
        if self.are_alike:
            return f"{some}; {odd} count as missing dates, {first}"
        return f"{some}, but {odd}, {first}: write them alike"


def is_day(digits: str) -> bool:
    """Returns whether digits are a day, such as 20260131."""
    return find_format([digits]) == DAYS_FORMAT


def may_be_dates(values: Sequence[str]) -> bool:
    """Returns whether most values are dates by themselves; meant for a few, of any column."""
    return sum(map(_is_date, values)) * 2 > len(values)


def _is_date(value: str) -> bool:
    """What cannot be a date is not tried as each format."""
    is_likely = len(value) in _DATE_LENGTHS and _MAY_BE_DATE.match(value)
    return bool(is_likely) and find_format([value]) is not None
