"""Drift: the distance between columns of new data and of older data, measured by TFDV.

TFDV compares numbers by histograms with ten bins of equal width. Each histogram extends from the
smallest to the largest value of its own data. A few outliers move nearly all values into one bin,
and two samples of the same heavy-tailed column seem far apart. TFDV's quantile histograms fail if
many rows have the same number. This module therefore counts the rows of both data sets between the
deciles of the older data, and TFDV measures the distance between the counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from components.example_validator.distribution_changes import (
    Column,
    Statistics,
    common_of,
    describe_move,
    find_column,
)
from trainer_module.errors import DataError

BY_CHANCE = 1e-6
"""The probability of a false alarm for a column and a window of requests."""
_FREQUENT_SHARE = 0.01
"""A number is frequent if its share of the rows is larger."""
_MAX_DEVIATIONS = 4
"""The maximum number of standard deviations by which the share of a frequent number differs between
samples of the same data."""

_Type = anomalies_pb2.AnomalyInfo
DRIFT = {
    _Type.COMPARATOR_L_INFTY_HIGH,
    _Type.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH,
    _Type.COMPARATOR_NORMALIZED_ABSOLUTE_DIFFERENCE_HIGH,
}

Measured: TypeAlias = anomalies_pb2.DriftSkewInfo.Measurement
MEASURES = {
    Measured.L_INFTY: ("infinity_norm", "shares"),
    Measured.JENSEN_SHANNON_DIVERGENCE: ("jensen_shannon", "distribution"),
    Measured.NORMALIZED_ABSOLUTE_DIFFERENCE: ("normalized_abs_difference", "shares"),
}
"""The key in the config or the schema for each of TFDV's measurements, and the quantity that the
measurement compares."""

_Statistics = statistics_pb2.FeatureNameStatistics
SCHEMA_TYPES = {
    _Statistics.INT: schema_pb2.INT,
    _Statistics.FLOAT: schema_pb2.FLOAT,
    _Statistics.STRING: schema_pb2.BYTES,
    _Statistics.BYTES: schema_pb2.BYTES,
}
"""The type of a column in a schema, by its type in statistics."""

Thresholds: TypeAlias = Mapping[str, float | None]
"""The thresholds of a column, by the measure: `infinity_norm` or `jensen_shannon`."""


@dataclass(frozen=True)
class OlderData:
    """The statistics of older data, from which drift is measured."""

    statistics: Statistics
    name: str
    """The name of the data for messages, such as `span 2026-01-05`. It may be empty."""


@dataclass(frozen=True)
class Drift:
    """The thresholds of columns, and the handling of drift."""

    columns: Mapping[str, Thresholds] = field(default_factory=dict)
    on_drift: str = "warn"
    """The config's handling of drift: `fail`, `warn` or `retrain`."""

    @property
    def is_severe(self) -> bool:
        """Whether drift stops the run."""
        return self.on_drift == "fail"

    @property
    def columns_by_key(self) -> dict[str, str]:
        """The columns, by the key in the config that contains the column's name."""
        return {f"drift.columns.{column}": column for column in self.columns}

    def validate(
        self,
        statistics: Statistics,
        schema: schema_pb2.Schema,
        previous: Statistics,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> anomalies_pb2.Anomalies:
        """Returns all anomalies of the statistics: differences from the schema, and drift.

        Args:
          schema: the schema. Its own drift comparators apply to columns without thresholds here.
          values: all numbers of the split, by column. The rows of these columns are counted between
            the deciles of the older data. In small splits, their thresholds are raised to the
            largest distance that chance explains.
        """
        values = values or {}
        before, now = with_equal_bins(previous, statistics, values)
        with_thresholds = schema_pb2.Schema()
        with_thresholds.CopyFrom(schema)
        for name, thresholds in self.columns.items():
            comparator = tfdv.get_feature(with_thresholds, name).drift_comparator
            comparator.Clear()
            if (infinity_norm := thresholds.get("infinity_norm")) is not None:
                comparator.infinity_norm.threshold = infinity_norm
            if (jensen_shannon := thresholds.get("jensen_shannon")) is not None:
                pair = find_column(before, name), find_column(now, name)
                # TFDV does not measure columns without values.
                is_measured = name in values and all(map(known_rows, pair))
                chance = chance_distance("jensen_shannon", *pair) if is_measured else 0.0
                threshold = max(jensen_shannon, min(chance, 1.0))
                comparator.jensen_shannon_divergence.threshold = threshold
        return tfdv.validate_statistics(now, with_thresholds, previous_statistics=before)

    def numbers(self, statistics: Statistics, previous: Statistics) -> list[schema_pb2.Feature]:
        """Returns the names and types of the columns whose `values` are an argument of `validate`:
        the columns with thresholds that are numeric in both statistics.
        """
        columns = {name: find_column(statistics, name) for name in self.columns}
        return [
            schema_pb2.Feature(name=name, type=SCHEMA_TYPES[column.type])
            for name, column in columns.items()
            if column is not None and _are_numbers(find_column(previous, name), column)
        ]

    def check_measures(self, schema: schema_pb2.Schema, section: str = "drift") -> None:
        """Checks that the measures suit the types of the columns.

        Raises:
          DataError: a numeric column has a threshold for the infinity norm. TFDV counts values only
            for text, so the infinity norm of numbers is always 0.
        """
        for column, threshold in self.columns.items():
            is_text = tfdv.get_feature(schema, column).type == schema_pb2.BYTES
            if threshold.get("infinity_norm") is not None and not is_text:
                raise DataError(
                    f"{section}.columns.{column}: infinity_norm compares shares of values in text,"
                    " but the column is numeric; use jensen_shannon"
                )


def measured_columns(anomalies: anomalies_pb2.Anomalies) -> dict[str, list[Measured]]:
    """Returns TFDV's measurements of each column."""
    return {info.path.step[0]: [*info.drift_measurements] for info in anomalies.drift_skew_info}


def describe_measured(
    measured: Measured, column: str, now: Statistics, older: OlderData | None
) -> str:
    """Returns a description of a measurement: the threshold, the distance and the changed values.

    Args:
      measured: TFDV's measurement, which may be below its threshold.
    """
    key, quantity = MEASURES[measured.type]
    result = f"{measured.value:.3g}"
    if older is not None:
        result += f" compared with {older.name}" if older.name else ""
        move = describe_move(find_column(older.statistics, column), find_column(now, column))
        result += f": {move}" if move else ""
    return (
        f"expected the {quantity} of the values to change by at most {measured.threshold:g} "
        f"({key}); found {result}"
    )


def with_equal_bins(
    before: Statistics, now: Statistics, values: Mapping[str, np.ndarray]
) -> tuple[Statistics, Statistics]:
    """Returns copies of two statistics whose histograms of numbers have the same bins.

    Args:
      values: all numbers of the new data, by column. Columns that are not numeric in both
        statistics are not changed.
    """
    copies = Statistics(), Statistics()
    for copy, original in zip(copies, (before, now), strict=True):
        copy.CopyFrom(original)
    for name, numbers in values.items():
        old, new = (find_column(copy, name) for copy in copies)
        if old is not None and new is not None and _are_numbers(old, new):
            _count_by_deciles(old, new, numbers)
    return copies


def _are_numbers(before: Column | None, now: Column | None) -> bool:
    """Returns whether a column exists and is numeric in both data sets."""
    return all(
        column is not None and column.WhichOneof("stats") == "num_stats" for column in (before, now)
    )


def _count_by_deciles(before: Column, now: Column, values: np.ndarray) -> None:
    """Replaces both histograms by histograms whose bins begin at the deciles of the older data.

    The deciles of the older data only give bounds for the share of a frequent number. Within these
    bounds, its share is assumed to be about the share in the new data.
    """
    quantiles = [
        h for h in before.num_stats.histograms if h.type == statistics_pb2.Histogram.QUANTILES
    ]
    values = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not quantiles or not quantiles[0].buckets or not len(values):
        return
    buckets = quantiles[0].buckets
    points = np.array([buckets[0].low_value, *(bucket.high_value for bucket in buckets)])
    counts = np.cumsum([0, *(bucket.sample_count for bucket in buckets)])
    edges = np.unique(points)
    first, last = np.searchsorted(points, edges, "left"), np.searchsorted(points, edges, "right")
    bounds = np.concatenate([[0], counts, [counts[-1]]]) / counts[-1]
    ordered = np.sort(values)
    smaller = np.searchsorted(ordered, edges, "left") / len(values)
    up_to = np.searchsorted(ordered, edges, "right") / len(values)
    share = up_to - smaller
    is_frequent = (last - first > 1) | (share > _FREQUENT_SHARE)
    # These are the lowest and the highest possible share of rows below each edge.
    high = np.array([0, *bounds[first[1:] + 1]])
    low = np.array([0, *bounds[first[1:]]])
    by_chance = _MAX_DEVIATIONS * np.sqrt(np.maximum(share, 1 / len(values)) / len(values))
    cumulative = np.array([0, *bounds[last[1:]]])
    low = np.where(is_frequent, np.clip(cumulative - share - by_chance, low, high), high)
    # The last bin is for values above the largest edge.
    _set_bins(now, [*smaller, up_to[-1]])
    _set_bins(before, [*np.clip(smaller, low, high), 1.0])


def _set_bins(column: Column, cumulative: Iterable[float]) -> None:
    """Sets a histogram whose bins have the ends 0, 1, 2 ..., as TFDV compares bins with equal ends.

    Args:
      cumulative: the share of rows below the end of each bin, except for the last bin.
    """
    other_histograms = [h for h in column.num_stats.histograms if h.type != h.STANDARD]
    histogram = statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD)
    counts = np.diff([0.0, *cumulative, 1.0]) * known_rows(column)
    for index, count in enumerate(counts.tolist()):
        histogram.buckets.add(low_value=index, high_value=index + 1, sample_count=count)
    del column.num_stats.histograms[:]
    column.num_stats.histograms.extend([histogram, *other_histograms])


def known_rows(column: Column | None) -> int:
    """Returns the number of rows with a value, or 0 without the column."""
    return 0 if column is None else int(common_of(column).num_non_missing)


def chance_distance(measure: str, before: Column | None, now: Column | None) -> float:
    """Returns the distance that two samples of the same data exceed once in a million times.

    The infinity norm is the largest difference of shares over all cells, which are distinct values
    or bins of a histogram. The result is an upper bound: it treats each share as a half, with a
    normally distributed error.

    The Jensen-Shannon divergence in nats, times 8 and divided by the sum of the inverse numbers of
    rows, has a chi-squared distribution (Endres and Schindelin, 2003). The quantile is by Wilson
    and Hilferty (1931). TFDV's divergence is in bits.

    Args:
      measure: `infinity_norm` or `jensen_shannon`.
    """
    rows = [known_rows(column) for column in (before, now)]
    if not all(rows):
        return 1.0
    inverse_rows = sum(1 / count for count in rows)
    cells = len(_cells(before) | _cells(now))
    if measure == "infinity_norm":
        return _normal_quantile(BY_CHANCE / 2 / max(cells, 1)) * math.sqrt(inverse_rows) / 2
    spread = 2 / (9 * max(cells - 1, 1))
    quantile = (
        max(cells - 1, 1) * (1 - spread + _normal_quantile(BY_CHANCE) * math.sqrt(spread)) ** 3
    )
    return quantile * inverse_rows / 8 / math.log(2)


def _cells(column: Column | None) -> set[object]:
    """Returns the distinct values of a text column, or the bins of a numeric column."""
    if column is None:
        return set()
    if column.WhichOneof("stats") == "num_stats":
        standard = [h for h in column.num_stats.histograms if h.type == h.STANDARD]
        return {bucket.low_value for h in standard for bucket in h.buckets}
    return {bucket.label for bucket in column.string_stats.rank_histogram.buckets}


def _normal_quantile(probability: float) -> float:
    """Returns the value that a standard normal variable exceeds with a given probability."""
    return -NormalDist().inv_cdf(probability)


@dataclass(frozen=True)
class ColumnSkew:
    """The distance of a column from the training data."""

    column: str
    measure: str
    """`infinity_norm` or `jensen_shannon`."""
    distance: float
    threshold: float
    chance: float
    """The largest distance that chance explains."""
    in_words: str
    """The description of the threshold, the distance and the changed values."""

    @property
    def is_skewed(self) -> bool:
        """Whether the distance exceeds both the threshold and the distance that chance explains."""
        return self.distance > max(self.threshold, self.chance)


def measure_skew(
    requests: pa.RecordBatch, drift: Drift, training_data: OlderData
) -> list[ColumnSkew]:
    """Returns the distance of each column in requests from the training data.

    Raises:
      DataError: the requests or the training data lack a column, or a measure does not suit the
        type of a column.
    """
    schema = schema_pb2.Schema()
    for name in drift.columns:
        schema.feature.add(name=name, type=_type_of(name, training_data, requests))
    drift.check_measures(schema, section="skew")
    requests = requests.select(list(drift.columns))
    values = {
        name: requests.column(name).flatten().to_numpy(zero_copy_only=False)
        for name in drift.columns
    }
    now = generate_statistics_in_memory(requests, tfdv.StatsOptions())
    before, now = with_equal_bins(training_data.statistics, now, values)
    measurements = measured_columns(drift.validate(now, schema, before))
    older = OlderData(before, training_data.name)
    return [
        _column_skew(name, measurements[name][0], now, older)
        if name in measurements
        else _without_values(name, threshold, now, older)
        for name, threshold in drift.columns.items()
    ]


def _without_values(
    name: str, thresholds: Mapping[str, float | None], now: Statistics, older: OlderData
) -> ColumnSkew:
    """Returns the skew of a column that has no value in the requests or in the training data.

    TFDV does not measure columns without values.
    """
    (measure, threshold), *_ = ((k, value) for k, value in thresholds.items() if value is not None)
    rows = known_rows(find_column(older.statistics, name)), known_rows(find_column(now, name))
    total = now.datasets[0].num_examples
    share = rows[0] / max(older.statistics.datasets[0].num_examples, 1)
    # In a column with very few values, requests may have no value by chance.
    is_expected = rows[1] > 0 or (1 - share) ** total > BY_CHANCE
    words = f"expected values as in {older.name}; found no value in any row"
    return ColumnSkew(name, measure, 0.0 if is_expected else 1.0, threshold, 0.0, words)


def _column_skew(name: str, measured: Measured, now: Statistics, older: OlderData) -> ColumnSkew:
    measure, _ = MEASURES[measured.type]
    chance = chance_distance(measure, find_column(older.statistics, name), find_column(now, name))
    words = describe_measured(measured, name, now, older)
    return ColumnSkew(name, measure, measured.value, measured.threshold, chance, words)


def _type_of(name: str, training_data: OlderData, requests: pa.RecordBatch) -> int:
    column = find_column(training_data.statistics, name)
    if column is None:
        raise DataError(
            f"skew.columns.{name}: {training_data.name} has no such column; correct the key."
        )
    if name not in requests.schema.names:
        raise DataError(
            f"skew.columns.{name}: the requests have no such column: the column is not an input of"
            " the model, or log.drop removes it from the log; remove the key."
        )
    return int(SCHEMA_TYPES[column.type])
