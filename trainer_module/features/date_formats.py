"""Date formats: the layout of a column's dates, with or without a time.

A layout consists of directives of `strptime`, such as `%d/%m/%Y`. After any date, a time may follow
as in `18:30`, `18:30:05.25` or `6:30 PM`, with or without a time zone. A format that ends in
` %H:%M` has times other than midnight. The name of the weekday may precede any date.

The patterns match the same strings in RE2 and in Python's `re`. Files, statistics and the graph of
a model therefore read dates by the same rules. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_module.features.number_format import SPACE, SPACES

ISO = "%Y-%m-%d"
"""The layout of ISO 8601."""
WITH_TIME = " %H:%M"
"""The suffix of a format whose dates have times other than midnight."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""The first three letters of the months' names, in lower case."""

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""The first three letters of the weekdays' names, in lower case."""

FIELDS = "%Y", "%m", "%d"
"""The directives of the first three fields in the output of `Form.rewrite`, in order."""
_SEPARATOR = ";"
_YEARS = {"%Y": r"[12]\d{3}", "%y": r"\d\d"}
"""The patterns of the directives of years."""


def _patterns(months: str, names: Sequence[str], days: str) -> dict[str, str]:
    """Returns the patterns of the directives of dates in some months.

    Args:
      months: a pattern of the months' numbers.
      names: the first letters of the months' names.
      days: a pattern of the days in these months.
    """
    name = rf"(?:{'|'.join(names)})[a-z]*\.?"
    return {**_YEARS, "%m": months, "%b": name, "%d": days}


_ANY_DATE = _patterns(r"0?[1-9]|1[0-2]", MONTHS, r"0?[1-9]|[12]\d|3[01]")
"""The patterns of the directives; together they also match invalid dates, such as 31 April."""
_VALID_DATES = (
    _patterns(r"0?[13578]|1[02]", (*MONTHS[:7:2], *MONTHS[7::2]), r"0?[1-9]|[12]\d|3[01]"),
    _patterns(r"0?[469]|11", (*MONTHS[3:6:2], *MONTHS[8:11:2]), r"0?[1-9]|[12]\d|30"),
    _patterns(r"0?2", MONTHS[1:2], r"0?[1-9]|[12]\d"),
)
"""The patterns of the directives for the months of 31 days, of 30 days, and for February."""

_WEEKDAY = rf"(?:(?:{'|'.join(WEEKDAYS)})[a-z]*\.?,?{SPACE}+)?"
_ZONE_NAME = "(?:z|utc|gmt|msk|[a-z]{1,4}t)"
"""A pattern of time zone names. Names such as CET and PST are ambiguous and count as UTC."""
_ZONE = rf"(?:{SPACE}*(?:{_ZONE_NAME}|([+-]\d\d)(?::?(\d\d))?(?:{SPACE}*\(?{_ZONE_NAME}\)?)?))?"
_TIME = (
    rf"(?:(?:t|{SPACE}+|,{SPACE}*|:)([01]?\d|2[0-3])[:.]?([0-5]\d)"
    rf"(?:[:.]?((?:[0-5]\d)(?:[.,]\d+)?))?(?:{SPACE}*([ap])\.?m\.?)?{_ZONE})?"
)
"""A pattern of an optional time.

Its groups are the hour, the minute, the second with its fraction, the a or p of AM or PM, and the
hours and minutes of the time zone."""
_MIDNIGHT = (
    rf"(?:(?:t|{SPACE}+)0?0:00(?::00(?:[.,]0+)?)?"
    rf"(?:{SPACE}*(?:{_ZONE_NAME}|[+-]00:?00(?:{SPACE}*{_ZONE_NAME})?))?)?"
)
"""A pattern of an optional time that is midnight."""
_TIME_DIRECTIVES = re.compile(r"(?:T|,? +)%[HI](?:[:.]?%[MSf]| ?%[pzZ]|Z)*$")


@dataclass(frozen=True)
class Form:
    """A date format and its patterns."""

    layout: str
    """The directives of the date, without the directives of a time."""
    has_time: bool
    """Whether the format ends in the directives of a time."""

    @classmethod
    def parse(cls, date_format: str) -> Form:
        """Returns a format in the notation of `strptime` as a Form; raises ValueError if it is
        invalid.
        """
        dates = re.sub(r"^%[aA],? +", "", date_format).replace("%B", "%b")
        layout = _TIME_DIRECTIVES.sub("", dates)
        directives = re.findall(r"%.?", layout)
        if unknown := [d for d in directives if d not in _ANY_DATE]:
            raise ValueError(
                f"{unknown[0]!r} is not a part of a date; a format consists of %Y, %y, %m, %b and "
                "%d, and optionally a time after the date, %H:%M"
            )
        kinds = sorted(directive.lower().replace("b", "m") for directive in directives)
        if kinds not in (["%d", "%m", "%y"], ["%m", "%y"]):
            raise ValueError(
                "a format has one year (%Y or %y), one month (%m or %b), and optionally one day "
                "(%d)"
            )
        return cls(layout, layout != dates)

    @property
    def pattern(self) -> str:
        """A pattern of valid dates with an optional time; 29 February is valid in every year."""
        return rf"(?i){SPACE}*{_WEEKDAY}{self._dates}{_TIME}{SPACE}*"

    @property
    def midnights(self) -> str:
        """A pattern of valid dates without a time, or with the time midnight."""
        return rf"(?i){SPACE}*{_WEEKDAY}{self._dates}{_MIDNIGHT}{SPACE}*"

    @property
    def groups(self) -> str:
        """A pattern whose groups `rewrite` refers to; it also matches invalid dates."""
        date = self._fill(_ANY_DATE, "({})")
        return rf"(?i)^{SPACE}*{_WEEKDAY}{date}{_TIME}{SPACE}*$"

    @property
    def rewrite(self) -> str:
        """A replacement for matches of `groups`: the year, the month, the day and the groups of the
        time, separated by semicolons.

        The month may be a name.
        """
        fields = [d.replace("y", "Y").replace("b", "m") for d in re.findall("%.", self.layout)]
        date = [rf"\{fields.index(field) + 1}" if field in fields else "1" for field in FIELDS]
        time = [rf"\{len(fields) + group}" for group in range(1, 7)]
        return _SEPARATOR.join([*date, *time])

    @property
    def _dates(self) -> str:
        return f"(?:{'|'.join(self._fill(parts, '(?:{})') for parts in _VALID_DATES)})"

    def _fill(self, parts: dict[str, str], group: str) -> str:
        """Returns the layout as a pattern.

        Args:
          parts: the patterns of the directives.
          group: the format of a group, such as `({})`.
        """
        # Without separators, as in 20260131, a month or day always has two digits.
        is_padded = re.search("%.%", self.layout) is not None
        pattern = ""
        for piece in re.split(r"(%.)", self.layout):
            part = parts.get(piece)
            if part is None:
                pattern += re.sub(r"(\\ )+", f"{SPACE}+", re.escape(piece))
            else:
                pattern += group.format(part.replace("0?", "0") if is_padded else part)
        return pattern


_FIRST_OF_MONTH = {"01/%m/%Y": "%d/%m/%Y", "01-%m-%Y": "%d-%m-%Y"}
"""Patterns of dates that are always the first of a month, with their layouts.

They precede the other layouts: 01/02/2026 and 01/03/2026 are two months, not two days of January.
"""
LAYOUTS = (
    ISO,
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y%m%d",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d/%b/%Y",
    "%Y %b %d",
    "%b %d, %Y",
    "%b %d %Y",
    "%Y-%m",
    "%m/%Y",
    "%b %Y",
    "%b-%Y",
    "%m/%d/%y",
    "%d/%m/%y",
    "%d.%m.%y",
    "%d-%b-%y",
    "%d %b %y",
    "%b-%y",
)
"""The layouts that can be inferred from data, in order of preference."""
_PADDED = ("%d.%m.%y",)
"""Layouts that are inferred only from two-digit days and months, as 1.10.22 may be a version
number."""


@functools.cache
def candidates() -> list[tuple[str, Form]]:
    """Returns all formats that can be inferred, with the patterns by which they are inferred.

    The first format whose pattern matches all values of a column is the column's format.
    """
    layouts = {**_FIRST_OF_MONTH, **{layout: layout for layout in LAYOUTS}}
    patterns = {template: Form(template, False).pattern for template in layouts}
    patterns |= {layout: patterns[layout].replace("0?", "0") for layout in _PADDED}
    return [(patterns[template], Form(layout, False)) for template, layout in layouts.items()]


def find_format(values: Sequence[str]) -> str | None:
    """Returns the format that matches all nonempty values, or None without a format or values.

    If no field is greater than 12, the day and the month are ambiguous. A field that is always 1
    then counts as the day. Otherwise the month is first in 02/03/2026, and the day in 02-03-2026.
    """
    texts = [value for value in values if value.strip(SPACES)]
    if not texts:
        return None
    for pattern, form in candidates():
        if _all_match(pattern, texts):
            return form.layout + ("" if _all_match(form.midnights, texts) else WITH_TIME)
    return None


def _all_match(pattern: str, texts: Sequence[str]) -> bool:
    match = _compile(pattern).fullmatch
    return all(match(text) for text in texts)


@functools.cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)
