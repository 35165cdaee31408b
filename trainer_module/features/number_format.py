"""Number formats in text: with thousands separators, a currency or a unit, in per cent, as a time.

The patterns mean the same in RE2 and in Python's `re`, so that files and the graph of a model are
read by the same rules. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

SPACES = " \t\n\f\r\u00a0\u202f"
r"""The white space of RE2's `\s`, and the no-break spaces, which browsers write in times."""
SPACE = f"[{SPACES}]"
"""A pattern of one white space character."""


@functools.cache
def compile_form(pattern: str) -> re.Pattern[str]:
    """Returns an RE2 pattern compiled for Python, which matches the same texts.

    Its repetitions of spaces are possessive, so that many spaces take linear time, as in RE2.
    """
    linear = pattern.replace(f"{SPACE}*", f"{SPACE}*+").replace(f"{SPACE}+", f"{SPACE}++")
    return re.compile(linear.replace(r"\d", "[0-9]"))


DIGITS = 7
"""The significant digits of a float32, which preserve a number written with fewer."""
LARGEST_WHOLE = 2.0**63
"""The bound below which a whole number is written with all of its digits."""


def as_text(number: np.integer | np.floating) -> str:
    """Returns a number as text: a whole one without a decimal point, otherwise such as `0.5` or
    `1e-07`.

    `raw_columns.dense_strings` does the same in the graph.
    """
    is_whole = number == np.round(number) and abs(number) < LARGEST_WHOLE
    return str(int(number)) if is_whole else f"{number:.{DIGITS}g}"


Style = Literal["point", "comma", "clock"]
STYLES: dict[Style, str] = {"point": "1,234.5", "comma": "1.234,5", "clock": "18:30:05"}
"""The number formats by name, with an example each."""
MINUS = "\u2212-"
"""The signs of negative numbers, which parentheses may replace."""
FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9}
"""The multipliers of a letter directly after a number, if the letter cannot be a unit."""
PLACEHOLDERS = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", "--", "."})
"""The usual placeholders of missing numbers, in lower case."""
_SMALLEST = 1e-50
"""The magnitude below which numbers are 0 in float32."""
_NEARLY_ALL = 0.9
"""The share of the values that have to be numbers of the same format."""

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
_PLAIN = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True)
class NumberFormat:
    """The number format of a column."""

    style: Style
    unit: str = ""
    """The text that may stand before or after each number."""

    @property
    def pattern(self) -> str:
        """A pattern of a number; `rewrite` orders its groups."""
        unit = re.escape(self.unit).replace("\\ ", f"{SPACE}+")
        before = rf"(?:{unit}{SPACE}*)?" if unit else ""
        after = rf"(?:{SPACE}*{unit})?" if unit else ""
        if self.style == "clock":
            half = rf"(?:{SPACE}*([ap])\.?m\.?)?"
            return (
                rf"(?i){SPACE}*([{MINUS}])?(\d{{1,4}}):([0-5]\d)(?::([0-5]\d(?:[.,]\d+)?))?{half}"
                rf"{SPACE}*"
            )
        # Of a unit of letters, the first one might be taken for a factor.
        factor = "" if re.search(r"[^\W\d_]", self.unit.strip(_SIGNS)) else "".join(FACTORS)
        return (
            rf"(?i){SPACE}*(\(?[+{MINUS}]?){SPACE}*{before}([+{MINUS}]?){SPACE}*"
            rf"({_number(self.style)})([{factor or 'k'}]{'?' if factor else '{0}'}){after}"
            rf"{SPACE}*(-?)\)?{SPACE}*"
        )

    @property
    def rewrite(self) -> str:
        """A replacement that orders the groups of the pattern, signs first."""
        return r"\1;\2;\3;\4;\5" if self.style == "clock" else r"\1\2\5;\3;\4"

    @property
    def decimal(self) -> str:
        """The decimal separator of the format."""
        return "," if self.style == "comma" else "."

    def fits(self, values: Sequence[str]) -> int:
        """Returns the number of values that match the format."""
        return sum(1 for value in values if _compiled(self).fullmatch(value))

    def read(self, text: str) -> float:
        """Returns the number in a text as a float32; NaN for other texts.

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
        """Returns a finite number as text, the inverse of `read`; hours have at most 4 digits."""
        if self.style == "clock":
            seconds, millionths = divmod(round(abs(number) * 3600e6), 1_000_000)
            minutes, second = divmod(seconds, 60)
            hour, minute = divmod(minutes, 60)
            sign = "-" if number < 0 else ""
            return f"{sign}{hour}:{minute:02}:{second:02}.{millionths:06}"
        text = repr(number) if abs(number) > _SMALLEST else "0"
        return text.replace(".", self.decimal)


def find_number_format(values: Sequence[str], decimal: str = ".") -> NumberFormat | None:
    """Returns the format of the values, if nearly all of them are numbers of one format.

    Placeholders of missing numbers are ignored. None if the format is ambiguous: with different
    units, or with a point that may separate thousands or decimals, unless the decimal separator
    `decimal` of the file is a comma.
    """
    values = [value for value in values if not is_placeholder(value)]
    enough = max(_NEARLY_ALL * len(values), 1)
    clock = NumberFormat("clock")
    if clock.fits(values) >= enough:
        return clock
    found = [match for value in values if (match := _LOOSE.fullmatch(value.strip(SPACES)))]
    if not found or len(found) < enough:
        return None
    unit = _common_unit(found)
    if unit is None:
        return None
    point, comma = NumberFormat("point", unit), NumberFormat("comma", unit)
    fits = {point: point.fits(values), comma: comma.fits(values)}
    if max(fits.values()) < enough:
        return None
    if fits[point] == fits[comma] and decimal == comma.decimal:
        return comma
    if fits[point] == fits[comma] and any("." in match[2] for match in found):
        # Three digits follow every separator: 1.234 and 12.345 are ambiguous.
        return None
    return point if fits[point] >= fits[comma] else comma


def is_placeholder(text: str) -> bool:
    """Returns whether a text is a usual placeholder of a missing number."""
    return text.strip(SPACES).lower() in PLACEHOLDERS


def are_plain(values: Sequence[str]) -> bool:
    """Returns whether all values consist of digits only, as codes may."""
    return all(_PLAIN.fullmatch(value.strip(SPACES)) for value in values)


def _common_unit(found: Sequence[re.Match[str]]) -> str | None:
    """Returns the unit beside all numbers, apart from multiplier letters; None if the units
    differ.
    """
    befores = Counter((match[1] or "").lower() for match in found)
    suffixes = [(match[4] or "").lower() for match in found]
    afters = Counter(suffixes)
    attached = all(not match[3] for match in found if match[4])
    if attached and afters.keys() <= {"", *FACTORS} and (len(afters) > 1 or any(befores)):
        afters = Counter({"": len(suffixes)})
    units = {text for text in (*befores, *afters) if text}
    if len(units) > 1 or (units and "" in befores and "" in afters and _mixes(found, *units)):
        return None
    (unit,) = units or {""}
    written = (text for match in found for text in (match[1], match[4]) if text)
    return next((text for text in written if text.lower() == unit), "")


def _mixes(found: Sequence[re.Match[str]], unit: str) -> bool:
    """Returns whether percentages occur both with and without their sign, as 5 % and 0.05."""
    bare = sum(1 for match in found if not match[1] and not match[4])
    return bare > 0 and unit in ("%", "‰")


def _number(style: Style) -> str:
    """Returns the pattern of a number's digits, with consistent thousands separators or without
    any.
    """
    decimal, thousands = (r"\.", ",") if style == "point" else (",", r"\.")
    separators = (thousands, "['\u2019]", " ", "[\u00a0\u202f]")
    apart = "|".join(rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}})+" for separator in separators)
    # As in India: 12,34,567.
    apart += rf"|[1-9]\d?(?:{thousands}\d\d)+{thousands}\d{{3}}"
    return rf"(?:(?:{apart}|\d{{1,30}})(?:{decimal}\d*)?|{decimal}\d+)(?:e[+-]?\d{{1,2}})?"


def _hours(hour: str, minute: str, second: str, half: str) -> float:
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
"""A pattern of numbers with a decimal point that are surely intended among plain numbers."""
