"""Which characters stand between and around words, for Python and for RE2 alike."""

from __future__ import annotations

SPACES = " \t\n\f\r\u00a0\u202f"
"""Those of RE2's `\\s`, and those that do not break a line, as browsers write them in times."""
SPACE = f"[{SPACES}]"
"""A pattern of one of them."""
