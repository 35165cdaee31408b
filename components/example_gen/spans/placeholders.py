"""The placeholders of a path that name spans; no TFX needed.

{SPAN}, {VERSION}, {YYYY}, {MM} and {DD} are TFX's; {HH} is ours, which makes a span of each hour.
"""

from __future__ import annotations

import difflib
import re

from trainer_module.errors import enumerate_names

SPAN, VERSION, HOUR = "SPAN", "VERSION", "HH"
DATE = ("YYYY", "MM", "DD")
NAMES = (SPAN, VERSION, *DATE, HOUR)

HOURS_A_DAY = 24
"""The span of an hour is numbered by the hours since 1970, as TFX numbers that of a day by days."""

PLACEHOLDER = re.compile(rf"\{{(?:(?:{SPAN}|{VERSION})(?::\d+)?|{'|'.join((*DATE, HOUR))})\}}")
"""Matches a placeholder, such as {SPAN:3}, which has three digits."""
_BRACES = re.compile(r"\{([^{}/]*)\}")


def is_span_pattern(pattern: str) -> bool:
    """Whether the pattern holds {SPAN} or a date."""
    return not {SPAN, *DATE, HOUR}.isdisjoint(_names(pattern))


def is_dated(pattern: str) -> bool:
    """Whether the pattern's spans are days or hours."""
    return not {*DATE, HOUR}.isdisjoint(_names(pattern))


def is_hourly(pattern: str) -> bool:
    """Whether the pattern's spans are hours."""
    return HOUR in _names(pattern)


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with a pattern's placeholders, and what would be right; None if nothing is."""
    names = _names(pattern)
    for found in _BRACES.findall(pattern):
        near = difflib.get_close_matches(found.upper(), NAMES, n=1, cutoff=0.4)
        # Braces that are like none of them may be part of a file's name.
        if near and not PLACEHOLDER.fullmatch(f"{{{found}}}"):
            return f"found {{{found}}}; did you mean {{{near[0]}}}?"
    if twice := [name for name in NAMES if names.count(name) > 1]:
        return f"{{{twice[0]}}} stands there twice; once is right"
    parts = [name for name in (*DATE, HOUR) if name in names]
    if parts and SPAN in names:
        return f"found {{{SPAN}}} beside {{{parts[0]}}}; spans are numbers or dates, never both"
    if parts and (missing := [name for name in DATE if name not in names]):
        right = "{YYYY}-{MM}-{DD}/{HH}" if HOUR in parts else "{YYYY}-{MM}-{DD}"
        absent = enumerate_names([f"{{{name}}}" for name in missing], "and")
        return f"found {{{parts[0]}}} without {absent}; right is {right}, or such"
    if VERSION in names and not is_span_pattern(pattern):
        return f"found {{{VERSION}}} without a span; add {{{SPAN}}} or {{YYYY}}-{{MM}}-{{DD}}"
    return None


def _names(pattern: str) -> list[str]:
    """The placeholders in their order, without braces and widths."""
    return [found[0].strip("{}").split(":")[0] for found in PLACEHOLDER.finditer(pattern)]
