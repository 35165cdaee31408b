"""TFDV's histograms of a numeric column, in a hundredth of the time.

TFDV goes through a thousand quantiles in Python for each column, split and kind of histogram, which
is most of what the statistics of a wide table take. The same is computed here on whole arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow_data_validation.utils import quantiles_util
from tensorflow_metadata.proto.v0 import statistics_pb2


def vectorise_histograms() -> None:
    """Lets TFDV use what is here, in this process; calling it again changes nothing."""
    module: Any = quantiles_util
    module._get_bin_weights = bin_weights
    module.generate_equi_width_histogram = equi_width_histogram


def bin_weights(
    boundaries: np.ndarray, cumulative: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bins between quantiles, as TFDV's `_get_bin_weights` has them.

    Args:
      boundaries: [bins + 1]; sorted, may repeat.
      cumulative: [bins + 1]; the weight up to each boundary.

    Returns:
      Lower bounds, upper bounds and weights, [bins] float64 each; bins of the same upper bound
      share their weight evenly, and the first ones have what lies on the first boundary.
    """
    low, high = boundaries[:-1], boundaries[1:]
    cumulative = cumulative.astype(np.float64)
    if not low.size:
        return low, high, np.diff(cumulative)
    starts = np.flatnonzero(np.concatenate([[True], high[1:] != high[:-1]]))
    lengths = np.diff(np.append(starts, high.size))
    weights = np.repeat(np.add.reduceat(np.diff(cumulative), starts) / lengths, lengths)
    is_other = (low != low[0]) | (high != high[0])
    first = int(np.argmax(is_other)) if is_other.any() else low.size
    weights[:first] += cumulative[0] / max(first, 1)
    return low, high, weights


def equi_width_histogram(
    quantiles: np.ndarray,
    cumulative_counts: np.ndarray,
    finite_min: float,
    finite_max: float,
    num_buckets: int,
    num_pos_inf: float,
) -> statistics_pb2.Histogram:
    """A histogram of buckets of one width, as TFDV's `generate_equi_width_histogram` makes it.

    Args:
      quantiles: [quantiles]; sorted.
      cumulative_counts: [quantiles]; the weight up to each.
      finite_min: the smallest finite value.
      finite_max: the largest finite value.
      num_buckets: how many buckets there are to be.
      num_pos_inf: the weight of positive infinities.
    """
    result = statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD)
    if not np.isfinite(finite_min) and not np.isfinite(finite_max):
        _add(result, finite_min, finite_max, cumulative_counts[-1])
        return result
    strip: Any = quantiles_util._strip_infinities
    quantiles, cumulative_counts, num_neg_inf = strip(
        quantiles, cumulative_counts, finite_max, num_pos_inf
    )
    buckets = num_buckets if finite_min != finite_max else 1
    edges = np.linspace(finite_min, finite_max, buckets + 1)
    if not np.isfinite(edges).all():
        return result
    if num_neg_inf:
        _add(result, -np.inf, -np.inf, num_neg_inf)
    counts = _share_out(*bin_weights(quantiles, cumulative_counts), edges)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        _add(result, low, high, count)
    if num_pos_inf:
        _add(result, np.inf, np.inf, num_pos_inf)
    return result


def _share_out(
    low: np.ndarray, high: np.ndarray, weights: np.ndarray, edges: np.ndarray
) -> np.ndarray:
    """The weight between each two edges, where that of a bin is spread evenly over it."""
    starts, ends = edges[:-1, np.newaxis], edges[1:, np.newaxis]
    is_point = low == high
    width = np.where(is_point, 1.0, high - low)
    share = np.clip(np.minimum(high, ends) - np.maximum(low, starts), 0, None) / width
    # A point on an edge belongs to the bucket below it; on the first edge, to the first one.
    inside = (low > starts) & (low <= ends)
    inside[0] |= low == edges[0]
    return np.where(is_point, inside, share) @ weights


def _add(histogram: statistics_pb2.Histogram, low: float, high: float, count: float) -> None:
    histogram.buckets.add(low_value=low, high_value=high, sample_count=count)
