"""How far rows that a model is asked for are from those that it was trained on, by TFDV.

TFDV compares numbers by histograms of ten equal widths, each from the smallest to the largest value
of its own data: a few outliers in one of them move nearly all values into one bar, and two samples
of the same heavy-tailed column seem far apart. Here both are counted between the deciles of the
training data, and TFDV measures that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.example_validator.drift import (
    Drift,
    Older,
    describe_measured,
    measure_name,
    measures_by_column,
)
from components.example_validator.moves import Column, Statistics, find_column
from trainer_module.errors import DataError

BY_CHANCE = 1e-6
"""Probability that an alarm of one column and window is by chance."""

_FREQUENT = 0.01
"""The share of rows from which on a number is one that many rows have."""

_Statistics = statistics_pb2.FeatureNameStatistics
_TYPES = {
    _Statistics.INT: schema_pb2.INT,
    _Statistics.FLOAT: schema_pb2.FLOAT,
    _Statistics.STRING: schema_pb2.BYTES,
    _Statistics.BYTES: schema_pb2.BYTES,
}


@dataclass(frozen=True)
class ColumnSkew:
    """How far a column is from the training data."""

    column: str
    measure: str
    """`infinity_norm` or `jensen_shannon`."""
    distance: float
    threshold: float
    chance: float
    """What two samples of the same data would not exceed."""
    in_words: str
    """What was expected and found, and which values moved from what to what."""

    @property
    def is_skewed(self) -> bool:
        """Whether the threshold is passed, and by more than by chance."""
        return self.distance > max(self.threshold, self.chance)


def measure_skew(served: pa.RecordBatch, drift: Drift, trained: Older) -> list[ColumnSkew]:
    """Compares columns that were served with the training data.

    Args:
      served: encoded columns.
      drift: the columns and how far each may move.
      trained: statistics of what was trained on.

    Raises:
      DataError: a column is in one of them alone, or of another type.
    """
    schema = schema_pb2.Schema()
    for name in drift.columns:
        schema.feature.add(name=name, type=_type_of(name, trained, served))
    drift.check_measures(schema, section="skew")
    before, now = _pair(served.select(list(drift.columns)), trained.statistics)
    measured = measures_by_column(drift.validate(now, schema, before))
    older = Older(before, trained.name)
    return [
        _column_skew(name, measured[name], now, older)
        if name in measured
        else _without_values(name, threshold, now, older)
        for name, threshold in drift.columns.items()
    ]


def _without_values(
    name: str, thresholds: Mapping[str, float | None], now: Statistics, older: Older
) -> ColumnSkew:
    """A column without any value in one of them, of which TFDV measures nothing."""
    (measure, threshold), *_ = ((k, value) for k, value in thresholds.items() if value is not None)
    rows = _known_rows(find_column(older.statistics, name)), _known_rows(find_column(now, name))
    total = now.datasets[0].num_examples
    share = rows[0] / max(older.statistics.datasets[0].num_examples, 1)
    # Of a column that is nearly always empty, some window has no value by chance.
    is_as_before = rows[1] > 0 or (1 - share) ** total > BY_CHANCE
    words = f"expected values as in {older.name}; found none in any row"
    return ColumnSkew(name, measure, 0.0 if is_as_before else 1.0, threshold, 0.0, words)


def _column_skew(
    name: str, measures: Mapping[int, Any], now: Statistics, older: Older
) -> ColumnSkew:
    (measured,) = measures.values()
    measure, before = measure_name(measured), older.statistics
    rows = [_known_rows(find_column(one, name)) for one in (before, now)]
    cells = _cells(find_column(before, name), find_column(now, name))
    chance = chance_distance(measure, rows, cells)
    words = describe_measured(measured, name, now, older)
    return ColumnSkew(name, measure, measured.value, measured.threshold, chance, words)


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


def _type_of(name: str, trained: Older, served: pa.RecordBatch) -> int:
    column = find_column(trained.statistics, name)
    if column is None:
        raise DataError(f"skew.columns.{name}: {trained.name} has no such column; correct the key.")
    if name not in served.schema.names:
        raise DataError(
            f"skew.columns.{name}: the requests have no such column: the model does not ask for it,"
            " or log.drop leaves it out; remove the key."
        )
    return int(_TYPES[column.type])


def _pair(served: pa.RecordBatch, trained: Statistics) -> tuple[Statistics, Statistics]:
    """Both statistics, with histograms of numbers that can be compared."""
    now = generate_statistics_in_memory(served, tfdv.StatsOptions())
    before = statistics_pb2.DatasetFeatureStatisticsList()
    before.CopyFrom(trained)
    for name in served.schema.names:
        old, new = find_column(before, name), find_column(now, name)
        if old is None or new is None or old.WhichOneof("stats") != "num_stats":
            continue
        if new.WhichOneof("stats") != "num_stats":
            continue
        _count_by_deciles(old, new, served.column(name).flatten().to_numpy(zero_copy_only=False))
    return before, now


def _count_by_deciles(before: Column, now: Column, values: np.ndarray) -> None:
    """Gives both a histogram whose bars begin at the deciles of what was trained on.

    Of a value that many rows have, deciles do not tell how many: a part of the rows below it may
    have it as well. Within these bounds the training data is taken to be as the other.
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
    is_frequent = (last - first > 1) | (up_to - smaller > _FREQUENT)
    # The share of rows that are smaller than an edge lies between these.
    high = np.array([0, *bounds[first[1:] + 1]])
    low = np.where(is_frequent, np.array([0, *bounds[first[1:]]]), high)
    # What is beyond the largest value has a bar as well.
    served = np.array([*smaller, up_to[-1]])
    trained = np.array([*np.clip(smaller, low, high), 1.0])
    for column, shares in ((before, trained), (now, served)):
        _set_histogram(column, np.diff([0.0, *shares, 1.0]) * _known_rows(column))


def _set_histogram(column: Column, counts: np.ndarray) -> None:
    """Bars by their place, as TFDV compares bars with the same ends."""
    kept = [h for h in column.num_stats.histograms if h.type != h.STANDARD]
    histogram = statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD)
    for place, count in enumerate(counts.tolist()):
        histogram.buckets.add(low_value=place, high_value=place + 1, sample_count=count)
    del column.num_stats.histograms[:]
    column.num_stats.histograms.extend([histogram, *kept])


def _known_rows(column: Column | None) -> int:
    if column is None:
        return 0
    return int(getattr(column, column.WhichOneof("stats")).common_stats.num_non_missing)


def _cells(before: Column | None, now: Column | None) -> int:
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
