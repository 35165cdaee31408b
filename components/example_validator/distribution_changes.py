"""Describes the change of a column between two statistics: shares, means, standard deviations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.example_validator.odd_rows import show_value

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList
Column: TypeAlias = statistics_pb2.FeatureNameStatistics

SHOWN_MOVES = 3
"""The maximum number of values or columns in a message: those with the largest changes."""
_MIN_SHARE = 0.005
"""The minimum change of a share that is reported. Smaller changes disappear in rounding."""
_MIN_DISTANCE = 0.05
"""The minimum distance of a column that is reported."""
_CHANCE_FACTOR = 1.95
"""The factor of the root of 1/n + 1/m. The product is the distance that two samples of n and m rows
of the same distribution exceed once in a thousand times (Smirnov, 1948)."""
_MIN_SHRINKING = 0.5
"""The minimum share by which the smaller standard deviation is below the larger one, for their
difference to count as a distance."""
_MIN_SPREAD_RATIO = 1.25
"""The minimum ratio of two standard deviations that is reported."""


def find_column(statistics: Statistics, name: str) -> Column | None:
    """Returns the statistics of a column, or None if the column is missing."""
    features = (f for f in statistics.datasets[0].features if list(f.path.step) == [name])
    return next(features, None)


def common_of(column: Column) -> statistics_pb2.CommonStatistics:
    """Returns the counts that columns of all types have."""
    return getattr(column, column.WhichOneof("stats")).common_stats


def describe_move(before: Column | None, now: Column | None) -> str:
    """Returns the change of a column, such as `'apple' from 41 % to 12 %`, or `mean 38.2 to 61`.

    The result is empty if no share, mean, standard deviation or number of missing values has
    changed.
    """
    if before is None or now is None:
        return "" if before is now else "the column is new" if now else "the column is missing"
    return ", ".join(_moves(before, now))


def _moves(before: Column, now: Column) -> Iterator[str]:
    kinds = {column.WhichOneof("stats") for column in (before, now)}
    if len(kinds) > 1:
        yield "the values have another type"
    elif kinds == {"string_stats"}:
        yield from _moves_of_values(_shares(before), _shares(now))
    elif kinds == {"num_stats"}:
        old, new = before.num_stats, now.num_stats
        if f"{old.mean:.4g}" != f"{new.mean:.4g}":
            yield f"mean {old.mean:.4g} to {new.mean:.4g}"
        smaller, larger = sorted([old.std_dev, new.std_dev])
        if larger > smaller * _MIN_SPREAD_RATIO:
            yield f"standard deviation {old.std_dev:.4g} to {new.std_dev:.4g}"
    old_missing, new_missing = _missing(before), _missing(now)
    if abs(new_missing - old_missing) > _MIN_SHARE:
        yield f"missing {_percent(old_missing)} to {_percent(new_missing)}"


def _moves_of_values(old: dict[str, float], new: dict[str, float]) -> Iterator[str]:
    moves = _differences(old, new)
    for value in sorted(moves, key=lambda value: (-moves[value], value))[:SHOWN_MOVES]:
        if moves[value] < _MIN_SHARE:
            return
        shown = show_value(value)
        if value not in old:
            yield f"{shown} new with {_percent(new[value])}"
        elif value not in new:
            yield f"{shown} from {_percent(old[value])} to none"
        else:
            yield f"{shown} from {_percent(old[value])} to {_percent(new[value])}"


def describe_most_moved(before: Statistics, now: Statistics) -> list[str]:
    """Returns the columns with the largest significant changes, each with the change."""
    older = {column.path.step[0]: column for column in before.datasets[0].features}
    newer = {column.path.step[0]: column for column in now.datasets[0].features}
    pairs = {name: (older.get(name), column) for name, column in newer.items()}
    distances = {name: _distance(*pair) for name, pair in pairs.items()}
    inverse_rows = sum(1 / max(s.datasets[0].num_examples, 1) for s in (before, now))
    min_distance = max(_CHANCE_FACTOR * math.sqrt(inverse_rows), _MIN_DISTANCE)
    moved = [name for name, distance in distances.items() if distance > min_distance]
    most_moved = sorted(moved, key=lambda name: -distances[name])[:SHOWN_MOVES]
    return [f"{name}: {move}" for name in most_moved if (move := describe_move(*pairs[name]))]


def _distance(before: Column | None, now: Column) -> float:
    """Returns the distance between two columns, from 0 to 1.

    For text, the distance is the largest change in the share of a value. For numbers, it is the
    Kolmogorov-Smirnov distance of two normal distributions with the columns' means. The share of
    missing values counts too. Standard deviations only count if one is at most half of the other,
    as outliers cause smaller differences.
    """
    kind = now.WhichOneof("stats")
    if before is None or before.WhichOneof("stats") != kind:
        return 1.0
    distances = [abs(_missing(now) - _missing(before))]
    if kind == "string_stats":
        distances += _differences(_shares(before), _shares(now)).values()
    elif kind == "num_stats":
        old, new = before.num_stats, now.num_stats
        spread = math.hypot(old.std_dev, new.std_dev) / math.sqrt(2)
        if not spread:
            return max(distances[0], float(old.mean != new.mean))
        shrunk = 1 - min(old.std_dev, new.std_dev) / max(old.std_dev, new.std_dev)
        distances.append(math.erf(abs(new.mean - old.mean) / spread / math.sqrt(8)))
        distances.append(shrunk if shrunk > _MIN_SHRINKING else 0.0)
    return max(distances)


def _differences(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    """Returns the difference between the shares of each value."""
    return {v: abs(new.get(v, 0.0) - old.get(v, 0.0)) for v in {**old, **new}}


def _shares(column: Column) -> dict[str, float]:
    """Returns the share of each value among all values."""
    total = common_of(column).tot_num_values
    buckets = column.string_stats.rank_histogram.buckets
    return {bucket.label: bucket.sample_count / total for bucket in buckets} if total else {}


def _missing(column: Column) -> float:
    common = common_of(column)
    rows = common.num_missing + common.num_non_missing
    return float(common.num_missing / rows) if rows else 0.0


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.1 else f"{100 * share:.0f} %"
