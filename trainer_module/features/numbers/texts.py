"""How a number is written where it stands for a category or a class; the graph does the same."""

from __future__ import annotations

import numpy as np

DIGITS = 7
"""So many a float32 holds, and one that was written with fewer is written as it was."""
LARGEST_WHOLE = 2.0**63
"""Below it, a whole number is written with all of its digits."""


def as_text(number: np.integer | np.floating) -> str:
    """A number as text: a whole one without a decimal point, such as `0.5` or `1e-07` otherwise.

    `raw_columns.dense_strings` writes it so in the graph.
    """
    is_whole = number == np.round(number) and abs(number) < LARGEST_WHOLE
    return str(int(number)) if is_whole else f"{number:.{DIGITS}g}"
