"""Formats of numbers in text: with thousands separators, a currency, a unit, or as a time.

The patterns match the same strings in RE2 and in Python's `re`. Files and the graph of a model
therefore read numbers by the same rules. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

SPACES = " \t\n\f\r\u00a0\u202f"
r"""The white space of RE2's `\s`, and no-break spaces, which browsers write in times."""
SPACE = f"[{SPACES}]"
"""A pattern of one white space character."""


@functools.cache
def compile_form(pattern: str) -> re.Pattern[str]:
    """Returns an RE2 pattern compiled by Python's `re`, which matches the same strings.

    Repetitions of spaces become possessive, so that many spaces take linear time, as in RE2.
    """
    linear = pattern.replace(f"{SPACE}*", f"{SPACE}*+").replace(f"{SPACE}+", f"{SPACE}++")
    return re.compile(linear.replace(r"\d", "[0-9]"))


DIGITS = 7
"""The number of significant digits of a float32 that is written as text."""
LARGEST_WHOLE = 2.0**63
"""The bound below which a whole number is written with all of its digits."""


def as_text(number: np.integer | np.floating) -> str:
    """Returns a number as text, such as `3`, `0.5` or `1e-07`; whole numbers have no decimal point.

    `raw_columns.dense_strings` does the same in the graph.
    """
    is_whole = number == np.round(number) and abs(number) < LARGEST_WHOLE
    return str(int(number)) if is_whole else f"{number:.{DIGITS}g}"


Style = Literal["point", "comma", "clock"]
STYLES: dict[Style, str] = {"point": "1,234.5", "comma": "1.234,5", "clock": "18:30:05"}
"""An example of each number format, by the name of the format."""
MINUS = "\u2212-"
"""The minus signs. A number in parentheses is negative, too."""
FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9}
"""The factors that a letter directly after a number stands for, unless the letter is a unit."""
PLACEHOLDERS = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", "--", "."})
"""The usual placeholders of missing numbers, in lower case."""
_SMALLEST = 1e-50
"""The magnitude below which a number is written as 0; float32 has no number as small."""
_NEARLY_ALL = 0.9
"""The minimum share of the values that match the inferred format."""

_SIGNS = "$€£¥₹₩₽₺₫₪₦₱฿₴₵₸"
_CODES = (
    *("usd", "eur", "gbp", "chf", "jpy", "cny", "rmb", "inr", "aud", "cad", "nzd", "sgd", "hkd"),
    *("sek", "nok", "dkk", "pln", "czk", "huf", "ron", "try", "brl", "mxn", "zar", "krw", "idr"),
    *("rs", "kr", "zł", "fr", "rp", "rm"),
)
_CURRENCY = rf"(?:[a-z]{{0,3}}[{_SIGNS}]|(?:{'|'.join(_CODES)})\.?)"
_UNIT = r"%|‰|°[cf]?|/\d{1,3}|/?[a-zµ][a-zµ²³/]*\.?(?: [a-z]+){0,2}"
_DIGITS = r"(?:\d(?:[\d.,'\u2019 \u00a0\u202f]*\d)?|[.,]\d+)(?:e[+-]?\d{1,2})?"
_LOOSE = re.compile(
    rf"\(?[+{MINUS}]?\s*({_CURRENCY})?\s*[+{MINUS}]?({_DIGITS})(\s*)({_CURRENCY}|{_UNIT})?-?\)?",
    re.IGNORECASE | re.ASCII,
)
"""A pattern of numbers in many notations, which finds the unit before the format is known.

Its groups are the currency before the number, the digits, the space after them, and the currency or
unit after the number."""
_PLAIN = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True)
class NumberFormat:
    """The number format of a column."""

    style: Style
    unit: str = ""
    """The unit that may precede or follow each number, or an empty string for no unit."""

    @property
    def pattern(self) -> str:
        """A pattern of the numbers in this format; `rewrite` refers to its groups."""
        unit = re.escape(self.unit).replace("\\ ", f"{SPACE}+")
        before = rf"(?:{unit}{SPACE}*)?" if unit else ""
        after = rf"(?:{SPACE}*{unit})?" if unit else ""
        if self.style == "clock":
            half = rf"(?:{SPACE}*([ap])\.?m\.?)?"
            return (
                rf"(?i){SPACE}*([{MINUS}])?(\d{{1,4}}):([0-5]\d)(?::([0-5]\d(?:[.,]\d+)?))?{half}"
                rf"{SPACE}*"
            )
        # With a unit of letters, such as km, the first letter could be read as a factor.
        factor = "" if re.search(r"[^\W\d_]", self.unit.strip(_SIGNS)) else "".join(FACTORS)
        return (
            rf"(?i){SPACE}*(\(?[+{MINUS}]?){SPACE}*{before}([+{MINUS}]?){SPACE}*"
            rf"({_number(self.style)})([{factor or 'k'}]{'?' if factor else '{0}'}){after}"
            rf"{SPACE}*(-?)\)?{SPACE}*"
        )

    @property
    def rewrite(self) -> str:
        """A replacement for matches of `pattern`: the signs and then the other groups, separated by
        semicolons.
        """
        return r"\1;\2;\3;\4;\5" if self.style == "clock" else r"\1\2\5;\3;\4"

    @property
    def decimal(self) -> str:
        """The decimal separator of the format."""
        return "," if self.style == "comma" else "."

    def fits(self, values: Sequence[str]) -> int:
        """Returns how many of the values match the format."""
        return sum(1 for value in values if _compiled(self).fullmatch(value))

    def read(self, text: str) -> float:
        """Returns the number in a string as a float32, or NaN if the format does not match.

        `raw_columns.parse_numbers` does the same in the graph.
        """
        match = _compiled(self).fullmatch(text)
        if match is None:
            return math.nan
        groups = [group or "" for group in match.groups()]
        if self.style == "clock":
            signs, number = groups[0], _hours(*groups[1:])
        else:
            signs = groups[0] + groups[1] + groups[4]
            digits = re.sub(rf"[^0-9eE+{self.decimal}-]", "", groups[2]).replace(",", ".")
            number = float(digits) * FACTORS.get(groups[3].lower(), 1.0)
        with np.errstate(over="ignore"):
            number = float(np.float32(-number if set(signs) & {"(", *MINUS} else number))
        return number if math.isfinite(number) else math.nan

    def write(self, number: float) -> str:
        """Returns a finite number in this format; `read` returns the number again.

        The hours of a clock must have at most 4 digits.
        """
        if self.style == "clock":
            seconds, millionths = divmod(round(abs(number) * 3600e6), 1_000_000)
            minutes, second = divmod(seconds, 60)
            hour, minute = divmod(minutes, 60)
            sign = "-" if number < 0 else ""
            return f"{sign}{hour}:{minute:02}:{second:02}.{millionths:06}"
        text = repr(number) if abs(number) > _SMALLEST else "0"
        return text.replace(".", self.decimal)


def find_number_format(values: Sequence[str], decimal: str = ".") -> NumberFormat | None:
    """Returns the format that at least 90 percent of the values match, or None.

    Placeholders of missing numbers are ignored. The result is also None if the values have
    different units, or if a point may separate thousands as well as decimals, as in 1.234.

    Args:
      values: the values of a column.
      decimal: the decimal separator of the file; a comma resolves the ambiguity of 1.234.
    """
    values = [value for value in values if not is_placeholder(value)]
    required = max(_NEARLY_ALL * len(values), 1)
    clock = NumberFormat("clock")
    if clock.fits(values) >= required:
        return clock
    numbers = [match for value in values if (match := _LOOSE.fullmatch(value.strip(SPACES)))]
    if not numbers or len(numbers) < required:
        return None
    unit = _common_unit(numbers)
    if unit is None:
        return None
    point, comma = NumberFormat("point", unit), NumberFormat("comma", unit)
    matches = {point: point.fits(values), comma: comma.fits(values)}
    if max(matches.values()) < required:
        return None
    if matches[point] == matches[comma] and decimal == comma.decimal:
        return comma
    if matches[point] == matches[comma] and any("." in match[2] for match in numbers):
        # Three digits follow every separator, so 1.234 and 12.345 are ambiguous.
        return None
    return point if matches[point] >= matches[comma] else comma


def is_placeholder(text: str) -> bool:
    """Returns whether a string is a usual placeholder of a missing number."""
    return text.strip(SPACES).lower() in PLACEHOLDERS


def are_plain(values: Sequence[str]) -> bool:
    """Returns whether all values consist of digits only, as codes such as ZIP codes do."""
    return all(_PLAIN.fullmatch(value.strip(SPACES)) for value in values)


def _common_unit(matches: Sequence[re.Match[str]]) -> str | None:
    """Returns the unit of the numbers, or None if the units differ.

    The result is an empty string if the numbers have no unit. Letters that are factors
    do not count as units.

    Args:
      matches: matches of `_LOOSE`.
    """
    prefixes = {(match[1] or "").lower() for match in matches}
    suffixes = {(match[4] or "").lower() for match in matches}
    are_attached = all(not match[3] for match in matches if match[4])
    if are_attached and suffixes <= {"", *FACTORS} and (len(suffixes) > 1 or any(prefixes)):
        suffixes = {""}
    units = {text for text in (*prefixes, *suffixes) if text}
    if len(units) > 1:
        return None
    (unit,) = units or {""}
    if "" in prefixes and "" in suffixes and _mixes_percentages(matches, unit):
        return None
    texts = (text for match in matches for text in (match[1], match[4]) if text)
    return next((text for text in texts if text.lower() == unit), "")


def _mixes_percentages(matches: Sequence[re.Match[str]], unit: str) -> bool:
    """Returns whether some percentages have the percent sign and others do not, as 5 % and 0.05."""
    return unit in ("%", "‰") and any(not match[1] and not match[4] for match in matches)


def _number(style: Style) -> str:
    """Returns the pattern of a number's digits, without thousands separators or with a consistent
    separator.
    """
    decimal, thousands = (r"\.", ",") if style == "point" else (",", r"\.")
    separators = (thousands, "['\u2019]", " ", "[\u00a0\u202f]")
    grouped = "|".join(rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}})+" for separator in separators)
    # India groups digits as in 12,34,567.
    grouped += rf"|[1-9]\d?(?:{thousands}\d\d)+{thousands}\d{{3}}"
    return rf"(?:(?:{grouped}|\d{{1,30}})(?:{decimal}\d*)?|{decimal}\d+)(?:e[+-]?\d{{1,2}})?"


def _hours(hour: str, minute: str, second: str, half: str) -> float:
    """Returns a time in hours; `half` is the a or p of AM or PM, or empty."""
    hours = int(hour)
    hours += 12 * (half.lower() == "p" and hours < 12) - 12 * (half.lower() == "a" and hours == 12)
    return hours + int(minute) / 60 + float((second or "0").replace(",", ".")) / 3600


@functools.cache
def _compiled(number_format: NumberFormat) -> re.Pattern[str]:
    return compile_form(number_format.pattern)


AMOUNT = (
    rf"(?i){SPACE}*\(?[+{MINUS}]?{SPACE}*{_CURRENCY}?{SPACE}*[+{MINUS}]?{_number('point')}[kmb]?"
    rf"{SPACE}*(?:{_CURRENCY}|%)?-?\)?{SPACE}*"
)
"""A pattern of numbers with an optional currency or percent sign, as they occur among plain
numbers."""
