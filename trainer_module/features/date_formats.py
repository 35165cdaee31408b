"""Date formats: one layout per column, with or without a time after it.

A format is a layout in the directives of `strptime`, such as `%d/%m/%Y`. A time may follow any date
in any usual notation: `18:30`, `18:30:05.25`, `6:30 PM`, each with or without a zone. A format that
ends in ` %H:%M` states that times other than midnight follow. The name of the weekday may precede
any date.

The patterns mean the same in RE2 and in Python's `re`, so that files, statistics and the graph of a
model are read by the same rules. Nothing here imports TensorFlow.
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
"""The suffix of a format whose dates have times."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""The prefixes of the names of the months, in lower case."""

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""The prefixes of the names of the weekdays, in lower case, which may precede a date."""

FIELDS = "%Y", "%m", "%d"
"""The directives by the position of their field in the output of `Form.rewrite`."""
_SEPARATOR = ";"
_EVERY_DAY = {"%Y": r"[12]\d{3}", "%y": r"\d\d"}


def _days(months: str, names: Sequence[str], days: str) -> dict[str, str]:
    """Returns the patterns of the directives for some months."""
    name = rf"(?:{'|'.join(names)})[a-z]*\.?"
    return {**_EVERY_DAY, "%m": months, "%b": name, "%d": days}


_ANY_DATE = _days(r"0?[1-9]|1[0-2]", MONTHS, r"0?[1-9]|[12]\d|3[01]")
_REAL_DATES = (
    _days(r"0?[13578]|1[02]", (*MONTHS[:7:2], *MONTHS[7::2]), r"0?[1-9]|[12]\d|3[01]"),
    _days(r"0?[469]|11", (*MONTHS[3:6:2], *MONTHS[8:11:2]), r"0?[1-9]|[12]\d|30"),
    _days(r"0?2", MONTHS[1:2], r"0?[1-9]|[12]\d"),
)
"""The patterns of the directives, for months of 31, 30 and 29 days separately."""

_WEEKDAY = rf"(?:(?:{'|'.join(WEEKDAYS)})[a-z]*\.?,?{SPACE}+)?"
_ZONE_NAME = "(?:z|utc|gmt|msk|[a-z]{1,4}t)"
"""A pattern of zone names, such as CET or PST, which are ambiguous, and treated as UTC."""
_ZONE = rf"(?:{SPACE}*(?:{_ZONE_NAME}|([+-]\d\d)(?::?(\d\d))?(?:{SPACE}*\(?{_ZONE_NAME}\)?)?))?"
_TIME = (
    rf"(?:(?:t|{SPACE}+|,{SPACE}*|:)([01]?\d|2[0-3])[:.]?([0-5]\d)"
    rf"(?:[:.]?((?:[0-5]\d)(?:[.,]\d+)?))?(?:{SPACE}*([ap])\.?m\.?)?{_ZONE})?"
)
"""A pattern of a time with the groups hour, minute, second with fraction, a or p, and the zone's
hours and minutes."""
_MIDNIGHT = (
    rf"(?:(?:t|{SPACE}+)0?0:00(?::00(?:[.,]0+)?)?"
    rf"(?:{SPACE}*(?:{_ZONE_NAME}|[+-]00:?00(?:{SPACE}*{_ZONE_NAME})?))?)?"
)
_TIME_DIRECTIVES = re.compile(r"(?:T|,? +)%[HI](?:[:.]?%[MSf]| ?%[pzZ]|Z)*$")


@dataclass(frozen=True)
class Form:
    """A date format, with its patterns."""

    layout: str
    has_time: bool

    @classmethod
    def parse(cls, date_format: str) -> Form:
        """Returns the form of a format; raises ValueError with the reason if it is invalid."""
        dates = re.sub(r"^%[aA],? +", "", date_format).replace("%B", "%b")
        layout = _TIME_DIRECTIVES.sub("", dates)
        directives = re.findall(r"%.?", layout)
        if unknown := [d for d in directives if d not in _ANY_DATE]:
            raise ValueError(
                f"{unknown[0]!r} is no part of a date that can be read; right are %Y, %y, %m, %b "
                "and %d, and after them a time, %H:%M"
            )
        kinds = sorted(directive.lower().replace("b", "m") for directive in directives)
        if kinds not in (["%d", "%m", "%y"], ["%m", "%y"]):
            raise ValueError("a format has a year (%Y), a month (%m or %b), and mostly a day (%d)")
        return cls(layout, layout != dates)

    @property
    def pattern(self) -> str:
        """A pattern of valid dates, including 29 February of any year, and an optional time."""
        return rf"(?i){SPACE}*{_WEEKDAY}{self._dates}{_TIME}{SPACE}*"

    @property
    def midnights(self) -> str:
        """A pattern of valid dates without a time, or with midnight only."""
        return rf"(?i){SPACE}*{_WEEKDAY}{self._dates}{_MIDNIGHT}{SPACE}*"

    @property
    def groups(self) -> str:
        """A pattern like `pattern` that also accepts invalid days; `rewrite` orders its groups."""
        date = self._fill(_ANY_DATE, "({})")
        return rf"(?i)^{SPACE}*{_WEEKDAY}{date}{_TIME}{SPACE}*$"

    @property
    def rewrite(self) -> str:
        """A replacement that makes CSV columns of year, month (possibly in words), day and the
        time's groups.
        """
        named = [d.replace("y", "Y").replace("b", "m") for d in re.findall("%.", self.layout)]
        dates = [rf"\{named.index(field) + 1}" if field in named else "1" for field in FIELDS]
        times = [rf"\{len(named) + place}" for place in range(1, 7)]
        return _SEPARATOR.join([*dates, *times])

    @property
    def _dates(self) -> str:
        return f"(?:{'|'.join(self._fill(parts, '(?:{})') for parts in _REAL_DATES)})"

    def _fill(self, parts: dict[str, str], group: str) -> str:
        """Returns the layout with patterns for its directives."""
        padded = re.search("%.%", self.layout) is not None
        filled = ""
        for piece in re.split(r"(%.)", self.layout):
            part = parts.get(piece)
            if part is None:
                filled += re.sub(r"(\\ )+", f"{SPACE}+", re.escape(piece))
            else:
                filled += group.format(part.replace("0?", "0") if padded else part)
        return filled


_FIRST_OF_MONTH = {"01/%m/%Y": "%d/%m/%Y", "01-%m-%Y": "%d-%m-%Y"}
"""Formats whose day is always 1, tried first: dates by month rather than the days of one January.
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
"""The layouts that can be inferred from data."""
_PADDED = ("%d.%m.%y",)
"""Layouts that are inferred only from two-digit days and months, as 1.10.22 may be a version."""


@functools.cache
def candidates() -> list[tuple[str, Form]]:
    """Returns all inferable forms with their patterns; the first one that matches all values is
    right.
    """
    forms = {**_FIRST_OF_MONTH, **{layout: layout for layout in LAYOUTS}}
    patterns = {found: Form(found, False).pattern for found in forms}
    patterns |= {layout: patterns[layout].replace("0?", "0") for layout in _PADDED}
    return [(patterns[found], Form(layout, False)) for found, layout in forms.items()]


def find_format(values: Sequence[str]) -> str | None:
    """Returns the format that matches all nonempty values; None if there is none, or no value.

    If days and months are ambiguous, as no day is beyond 12, a field that is always the first
    counts as the day; otherwise the month comes first between slashes, and the day between hyphens.
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
