"""Texts of pages: visible forms of invisible characters, and numbers in few digits."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeGuard

NONE = "-"
"""The text of a missing value."""
_MAX_DECIMALS = 6
MAX_CHARACTERS = 200
"""The length from which `shorten` cuts a text."""

_KEPT = {"\n", "\t", "\u200c", "\u200d"}
"""Characters that are kept: line breaks, and the joiners that Persian and emoji need."""
_HIDDEN = re.compile(r"[^ -~\u00a1-\u00ac\u00ae-\u02ff\u0400-\u052f\u3040-\u30ff\u4e00-\u9fff]")
"""The characters whose category `visible` looks up. All others are visible, which saves time."""
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of control, format, surrogate and separating characters."""


def visible(text: str) -> str:
    r"""Returns a text in which characters that are invisible or that change the order of others are
    codes such as `\x1b` or `U+202E`.
    """
    return _HIDDEN.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    character = match[0]
    if character in _KEPT or unicodedata.category(character) not in _INVISIBLE:
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"U+{number:04X}"


def shorten(text: object, limit: int = MAX_CHARACTERS) -> str:
    """Returns a value as text of at most `limit` characters."""
    words = str(text)
    return words if len(words) <= limit else f"{words[: limit - 1]}…"


def number(value: object) -> str:
    """Returns a number in four significant digits, or NONE for None, NaN and other types.

    Numbers below 10,000 have no comma: they may be years.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) < 9999.5:
        return f"{value:.4g}"
    is_whole = isinstance(value, int) or value.is_integer()
    return f"{value:,.0f}" if abs(value) < (1e15 if is_whole else 1e7) else f"{value:.4g}"


def alike(values: Sequence[float], scale: float, sign: str = "") -> list[str]:
    """Returns numbers with the same decimals: those that three digits of `scale` need, but at most
    four digits of the largest number if these still show `scale`, without zeros at the end of all.

    Args:
      scale: the largest number, or the width of an interval.
      sign: `+` if positive numbers have a sign.
    """
    decimals = -1
    if is_number(scale) and scale > 0 and all(map(is_number, values)):
        first = -math.floor(math.log10(scale))
        most = 3 - math.floor(math.log10(max(scale, *map(abs, values))))
        decimals = max(first, min(first + 2, most))
    if not 0 <= decimals <= _MAX_DECIMALS:
        return [signed(value) if sign else number(value) for value in values]
    # The sum turns -0 into 0.
    rounded = [round(value, decimals) + 0.0 for value in values]
    while decimals and all(round(value, decimals - 1) == value for value in rounded):
        decimals -= 1
    comma = "," if max(map(abs, rounded), default=0) >= 1e4 else ""
    return [f"{value:{sign if value else ''}{comma}.{decimals}f}" for value in rounded]


def signed(value: object) -> str:
    """Returns a number with its sign."""
    shown = number(value)
    is_positive = isinstance(value, int | float) and value > 0
    return f"+{shown}" if is_positive and shown != NONE else shown


def yes_or_no(value: bool | None) -> str:
    """Returns `yes`, `no`, or NONE for None."""
    return NONE if value is None else "yes" if value else "no"


def percent(value: object) -> str:
    """Returns a share as a percentage, or NONE."""
    if not is_number(value):
        return NONE
    return "<0.1%" if 0 < value < 0.0005 else f"{100 * value:.3g}%"


def interval(ends: Iterable[float] | None) -> str:
    """Returns the two ends of an interval, in the digits that its width needs, or NONE."""
    if ends is None:
        return NONE
    low, high = ends
    is_known = NONE not in (number(low), number(high))
    return " to ".join(alike((low, high), high - low)) if is_known else NONE


def duration(seconds: object) -> str:
    """Returns a time in seconds, minutes or hours."""
    if not is_number(seconds):
        return NONE
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(count: object) -> str:
    """Returns a number of bytes in decimal units, or NONE."""
    if not is_number(count):
        return NONE
    for unit, divisor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= divisor:
            return f"{count / divisor:.3g} {unit}"
    return f"{count:.0f} B"


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether a value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def listed(names: Iterable[str], limit: int = 5) -> str:
    """Returns up to `limit` names in a list, with the number of further names."""
    found = [shorten(name, 60) for name in names]
    further = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + further
