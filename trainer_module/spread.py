"""Rows all over a data set, for what a part of the rows is enough to tell."""

from __future__ import annotations

import numpy as np


def spread_rows(total: int, most: int) -> np.ndarray:
    """Picks rows so that each stretch of the data, whatever its order, has its share of them.

    The rows are divided into stretches of about equal length, and one row is drawn from each. Every
    n-th row would be a biased sample of rows that alternate, such as the hours of a day.

    Args:
      total: rows of the data.
      most: rows to pick, at most.

    Returns:
      [min(total, most)] int64: the places of the rows, in order, the same in each call.
    """
    picked = min(total, most)
    starts = np.arange(picked + 1, dtype=np.int64) * total // max(picked, 1)
    return starts[:-1] + np.random.default_rng(0).integers(np.diff(starts))
