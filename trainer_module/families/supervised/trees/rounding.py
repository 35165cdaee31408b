"""Merges values that differ by rounding errors, so that no condition of a tree separates them.

TensorFlow's vectorised kernels round some functions, such as the sine of a date, otherwise for a
single row than for a batch.
"""

from __future__ import annotations

import numpy as np

TOLERANCE = 2.0**-21
"""The largest rounding error, as a share of the median absolute value of a column, which a few
outliers do not change: a few units in the last place of float32."""
MAX_WIDTH = 4
"""The largest difference within values that are merged, in tolerances; wider runs of neighbouring
values are a continuum."""


def merge_rounded(values: np.ndarray) -> np.ndarray:
    """Returns a column in which values that differ by rounding errors are equal.

    Args:
      values: [examples] float32; NaN and infinite values are kept.
    """
    distinct, position = np.unique(values, return_inverse=True)
    count = int(np.isfinite(distinct).sum())
    start = int(np.isneginf(distinct[:1]).sum())
    finite = distinct[start : start + count].astype(np.float64)
    if count < 2:
        return values
    tolerance = TOLERANCE * np.median(np.abs(finite))
    begins = np.flatnonzero(np.diff(finite, prepend=-np.inf) > tolerance)
    sizes = np.diff(begins, append=count)
    ends = begins + sizes - 1
    is_narrow = finite[ends] - finite[begins] <= MAX_WIDTH * tolerance
    merged = np.where(np.repeat(is_narrow, sizes), np.repeat(finite[begins], sizes), finite)
    distinct[start : start + count] = merged
    return distinct[position]
