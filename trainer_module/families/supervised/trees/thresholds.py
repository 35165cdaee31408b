"""Thresholds of trees at which a rounding error does not decide the conditions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer_module.families.supervised.trees.forest import Forest

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
