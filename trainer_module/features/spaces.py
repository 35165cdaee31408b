"""Which characters stand between and around words, for Python and for RE2 alike."""

from __future__ import annotations

import functools
import re

SPACES = " \t\n\f\r\u00a0\u202f"
"""Those of RE2's `\\s`, and those that do not break a line, as browsers write them in times."""
SPACE = f"[{SPACES}]"
"""A pattern of one of them."""


@functools.cache
def compile_form(pattern: str) -> re.Pattern[str]:
    """A pattern of RE2 for Python, which matches the same.

    Spaces are never given back, so that a text of many spaces takes no longer than it does RE2.
    """
    linear = pattern.replace(f"{SPACE}*", f"{SPACE}*+").replace(f"{SPACE}+", f"{SPACE}++")
    return re.compile(linear.replace(r"\d", "[0-9]"))
