"""Cross-validation: what the folds are called, and what all of them come to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

FOLDS_FOLDER = "folds"
"""In the folders of a training: that which has one for each fold."""


def summarize(measured: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """By metric its value on each fold, their mean and their standard deviation."""
    return {
        name: {
            "values": (values := [metrics[name] for metrics in measured]),
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values),
        }
        for name in measured[0]
    }
