"""Numbers of two data sets counted between the same bounds, so that TFDV can compare them.

TFDV compares numbers by histograms of ten equal widths, each from the smallest to the largest value
of its own data: a few outliers in one of them move nearly all values into one bar, and two samples
of the same heavy-tailed column seem far apart. Here both are counted between the deciles of the
older data, and TFDV measures that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.example_validator.moves import Column, Statistics, find_column

BY_CHANCE = 1e-6
"""Probability that an alarm of one column and window is by chance."""

_FREQUENT = 0.01
"""The share of rows from which on a number is one that many rows have."""
_DEVIATIONS = 4
"""Standard deviations that its share may be off by in two samples of the same data."""


def are_numbers(before: Column | None, now: Column | None) -> bool:
    """Whether a column is there, and holds numbers, in both."""
    return all(one is not None and one.WhichOneof("stats") == "num_stats" for one in (before, now))


def with_equal_bars(
    before: Statistics, now: Statistics, values: Mapping[str, np.ndarray]
) -> tuple[Statistics, Statistics]:
    """Copies of two statistics with histograms of numbers that can be compared.

    Args:
      before: of older data.
      now: of other data.
      values: by column, all that the other data has; columns that are text in one stay as they are.
    """
    copies = _copy(before), _copy(now)
    for name, numbers in values.items():
        old, new = (find_column(copy, name) for copy in copies)
        if old is not None and new is not None and are_numbers(old, new):
            count_by_deciles(old, new, numbers)
    return copies


def _copy(statistics: Statistics) -> Statistics:
    copy = statistics_pb2.DatasetFeatureStatisticsList()
    copy.CopyFrom(statistics)
    return copy


def count_by_deciles(before: Column, now: Column, values: np.ndarray) -> None:
    """Gives both a histogram whose bars begin at the deciles of the older data.

    Of a value that many rows have, deciles do not tell how many: a part of the rows below it may
    have it as well, about as many as in the other data. Within these bounds the older data is taken
    to be as the other.

    Args:
      before: of the older data.
      now: of the other data.
      values: all that the other data has.
    """
    quantiles = [
        h for h in before.num_stats.histograms if h.type == statistics_pb2.Histogram.QUANTILES
    ]
    values = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not quantiles or not quantiles[0].buckets or not len(values):
        return
    buckets = quantiles[0].buckets
    points = np.array([buckets[0].low_value, *(bucket.high_value for bucket in buckets)])
    known = np.cumsum([0, *(bucket.sample_count for bucket in buckets)])
    edges = np.unique(points)
    first, last = np.searchsorted(points, edges, "left"), np.searchsorted(points, edges, "right")
    bounds = np.concatenate([[0], known, [known[-1]]]) / known[-1]
    ordered = np.sort(values)
    smaller = np.searchsorted(ordered, edges, "left") / len(values)
    up_to = np.searchsorted(ordered, edges, "right") / len(values)
    share = up_to - smaller
    is_frequent = (last - first > 1) | (share > _FREQUENT)
    # The share of rows that are smaller than an edge lies between these.
    high = np.array([0, *bounds[first[1:] + 1]])
    low = np.array([0, *bounds[first[1:]]])
    by_chance = _DEVIATIONS * np.sqrt(np.maximum(share, 1 / len(values)) / len(values))
    reached = np.array([0, *bounds[last[1:]]])
    low = np.where(is_frequent, np.clip(reached - share - by_chance, low, high), high)
    # What is beyond the largest value has a bar as well.
    served = np.array([*smaller, up_to[-1]])
    trained = np.array([*np.clip(smaller, low, high), 1.0])
    for column, shares in ((before, trained), (now, served)):
        _set_histogram(column, np.diff([0.0, *shares, 1.0]) * known_rows(column))


def _set_histogram(column: Column, counts: np.ndarray) -> None:
    """Bars by their place, as TFDV compares bars with the same ends."""
    kept = [h for h in column.num_stats.histograms if h.type != h.STANDARD]
    histogram = statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD)
    for place, count in enumerate(counts.tolist()):
        histogram.buckets.add(low_value=place, high_value=place + 1, sample_count=count)
    del column.num_stats.histograms[:]
    column.num_stats.histograms.extend([histogram, *kept])


def known_rows(column: Column | None) -> int:
    """How many rows have a value; none where there is no column."""
    if column is None:
        return 0
    return int(getattr(column, column.WhichOneof("stats")).common_stats.num_non_missing)


def count_cells(before: Column | None, now: Column | None) -> int:
    """Different values of text, or bars of numbers."""
    cells: set[object] = set()
    for column in (before, now):
        if column is None:
            continue
        if column.WhichOneof("stats") == "num_stats":
            standard = [h for h in column.num_stats.histograms if h.type == h.STANDARD]
            cells |= {bucket.low_value for h in standard for bucket in h.buckets}
        else:
            cells |= {b.label for b in column.string_stats.rank_histogram.buckets}
    return len(cells)


def chance_distance(measure: str, rows: Sequence[int], cells: int) -> float:
    """How far apart two samples of the same data are, but for one time in a million.

    The largest difference of shares is bounded by that of two shares of a half, normally
    distributed, for each of the cells. The Jensen-Shannon divergence in nats, times 8 and divided
    by the sum of the inverse numbers of rows, is distributed as chi-squared (Endres and Schindelin,
    2003), whose quantile is that of Wilson and Hilferty (1931); TFDV's is in bits.

    Args:
      measure: `infinity_norm` or `jensen_shannon`.
      rows: of the samples.
      cells: different values, or bars of a histogram.
    """
    if not all(rows):
        return 1.0
    noise = sum(1 / count for count in rows)
    if measure == "infinity_norm":
        return _beyond(BY_CHANCE / 2 / max(cells, 1)) * math.sqrt(noise) / 2
    spread = 2 / (9 * max(cells - 1, 1))
    quantile = max(cells - 1, 1) * (1 - spread + _beyond(BY_CHANCE) * math.sqrt(spread)) ** 3
    return quantile * noise / 8 / math.log(2)


def _beyond(probability: float) -> float:
    """What a standard normal variable exceeds with a probability."""
    return -NormalDist().inv_cdf(probability)
