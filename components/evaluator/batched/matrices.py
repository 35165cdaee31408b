"""TFMA's matrices at many thresholds from a histogram, whole arrays at once.

TFMA does so in Python, threshold by threshold: a tenth of a second for each slice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import binary_confusion_matrices, metric_types

from components.compat.tfma import epsilon, interpolated_thresholds
from components.evaluator.batched.counts import Histogram
from components.evaluator.batched.twins import Twin

_NAME = re.compile(
    rf"{binary_confusion_matrices.BINARY_CONFUSION_MATRICES_NAME}:num_thresholds=(\d+)"
)


def find_matrices(
    twin: Twin, number: int, derived: Sequence[metric_types.DerivedMetricComputation]
) -> dict[Any, Any]:
    """The matrices that are derived from a histogram of a slice; none of another twin.

    Matrices at thresholds of other kinds, such as those of plots, are TFMA's to derive.

    Args:
      twin: whose sums they are of.
      number: of the slice.
      derived: what is computed from what twins give.
    """
    if not isinstance(twin, Histogram):
        return {}
    (own,) = twin.combiner.extract_output({})
    wanted = [key for computation in derived for key in computation.keys]
    matches = [(key, _NAME.fullmatch(key.name)) for key in wanted if _are_of_one(key, own)]
    return {key: _matrices(twin, number, int(match[1])) for key, match in matches if match}


def _are_of_one(key: metric_types.MetricKey, own: metric_types.MetricKey) -> bool:
    """Whether what is derived, by that key, is of the same model and weights."""
    parts = ("model_name", "output_name", "sub_key", "example_weighted")
    return all(getattr(key, part) == getattr(own, part) for part in parts)


def _matrices(twin: Histogram, number: int, count: int) -> Any:
    """As TFMA makes them; of thresholds from -epsilon to 1 + epsilon."""
    thresholds = interpolated_thresholds(count)
    buckets, sums = twin.of_slice(number)
    scale = twin.scale
    starts = (buckets - 1) / scale.buckets * scale.width + scale.left
    starts = np.where(buckets == 0, -np.inf, starts)
    starts = np.where(buckets == twin.cells - 1, np.inf, starts)
    # Intervals begin at their thresholds there, and end at them in a matrix.
    bounds = thresholds + epsilon()
    places = np.clip(np.searchsorted(bounds, starts, "right") - 1, 0, count - 1)
    positive = np.bincount(places, sums[:, 0], count)
    negative = np.bincount(places, sums[:, 2] - sums[:, 0], count)
    found, false = positive[::-1].cumsum()[::-1], negative[::-1].cumsum()[::-1]
    missed, left = positive.cumsum() - positive, negative.cumsum() - negative
    above = thresholds >= 1 + epsilon()
    matrices = [
        np.where(above, 0.0, found),
        np.where(above, false[0], left),
        np.where(above, 0.0, false),
        np.where(above, found[0], missed),
    ]
    names = ("tp", "tn", "fp", "fn")
    by_name = {name: part.tolist() for name, part in zip(names, matrices, strict=True)}
    return binary_confusion_matrices.Matrices(thresholds=thresholds.tolist(), **by_name)
