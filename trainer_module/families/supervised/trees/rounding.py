"""Keeps rounding errors from deciding the conditions of trees.

TensorFlow's vectorised kernels round some functions, such as the sine of a date, otherwise for a
single row than for a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from trainer_module.families.supervised.trees.forest import Forest

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


GAP_SHARE = (3 - 5**0.5) / 2
"""The share of the gap between two values at which a threshold lies: the golden section, which is
the farthest from all simple fractions. In many columns, such as prices, the middle of the gap is a
value of other examples, for which a rounding error would decide."""


def move_thresholds(forest: Forest, columns: Sequence[np.ndarray]) -> None:
    """Moves each threshold within the gap between the neighbouring values of its column.

    The conditions of the examples do not change.

    Args:
      forest: the forest.
      columns: the values of each column in all examples, [examples] each.
    """
    threshold, column = np.asarray(forest.threshold, np.float32), np.asarray(forest.column)
    is_number = (np.asarray(forest.bitmap) < 0) & ~np.isnan(threshold)
    for index, values in enumerate(columns):
        nodes = np.flatnonzero(is_number & (column == index))
        # A missing number counts as the mean.
        known = np.unique(np.append(values[np.isfinite(values)], forest.means[index]))
        known = known.astype(np.float32)
        above = np.searchsorted(known, threshold[nodes])
        nodes, above = (a[(above > 0) & (above < len(known))] for a in (nodes, above))
        low, high = known[above - 1], known[above]
        moved = (low + GAP_SHARE * (high.astype(np.float64) - low)).astype(np.float32)
        threshold[nodes] = np.where(moved > low, moved, high)
    forest.threshold = threshold.tolist()
