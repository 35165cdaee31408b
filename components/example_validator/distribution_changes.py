"""The change of a column between two sets of statistics, described by shares, means and spreads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.example_validator.odd_rows import show_value

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList
Column: TypeAlias = statistics_pb2.FeatureNameStatistics

SHOWN_MOVES = 3
"""The number of values of a column, or of columns, that a message names: those that moved most."""
_LEAST_SHARE = 0.005
"""The least change of a share; smaller ones look the same when rounded."""
_LEAST_DISTANCE = 0.05
"""The least distance of a column that counts as an explanation."""
_CHANCE = 1.95
"""The factor of the root of 1/n + 1/m: the distance that two samples of one distribution exceed
once in a thousand times (Smirnov, 1948)."""
_LEAST_SHRINKING = 0.5
_LEAST_SPREAD = 1.25
"""The least factor by which a reported standard deviation grew or shrank."""


def find_column(statistics: Statistics, name: str) -> Column | None:
    """Returns the statistics of a column; None if there are none."""
    features = (f for f in statistics.datasets[0].features if list(f.path.step) == [name])
    return next(features, None)


def common_of(column: Column) -> statistics_pb2.CommonStatistics:
    """Returns the counts that columns of all types have."""
    return getattr(column, column.WhichOneof("stats")).common_stats


def describe_move(before: Column | None, now: Column | None) -> str:
    """Returns a change, such as `'apple' from 41 % to 12 %, 'melon' new with 30 %`, or `mean 38.2
    to 61`.

    Empty if no share, mean, spread or number of missing values has changed.
    """
    if before is None or now is None:
        return "" if before is now else "the column is new" if now else "the column is gone"
    return ", ".join(_moves(before, now))


def _moves(before: Column, now: Column) -> Iterator[str]:
    kinds = {column.WhichOneof("stats") for column in (before, now)}
    if len(kinds) > 1:
        yield "its values are of another type"
    elif kinds == {"string_stats"}:
        yield from _moves_of_values(_shares(before), _shares(now))
    elif kinds == {"num_stats"}:
        old, new = before.num_stats, now.num_stats
        if f"{old.mean:.4g}" != f"{new.mean:.4g}":
            yield f"mean {old.mean:.4g} to {new.mean:.4g}"
        smaller, larger = sorted([old.std_dev, new.std_dev])
        if larger > smaller * _LEAST_SPREAD:
            yield f"standard deviation {old.std_dev:.4g} to {new.std_dev:.4g}"
    old_missing, new_missing = _missing(before), _missing(now)
    if abs(new_missing - old_missing) > _LEAST_SHARE:
        yield f"missing {_percent(old_missing)} to {_percent(new_missing)}"


def _moves_of_values(old: dict[str, float], new: dict[str, float]) -> Iterator[str]:
    moves = _differences(old, new)
    for value in sorted(moves, key=lambda value: (-moves[value], value))[:SHOWN_MOVES]:
        if moves[value] < _LEAST_SHARE:
            return
        shown = show_value(value)
        if value not in old:
            yield f"{shown} new with {_percent(new[value])}"
        elif value not in new:
            yield f"{shown} gone, had {_percent(old[value])}"
        else:
            yield f"{shown} from {_percent(old[value])} to {_percent(new[value])}"


def most_moved(before: Statistics, now: Statistics) -> list[str]:
    """Returns the columns that moved most, and more than by chance, furthest first, with figures.

    Args:
      before: the statistics of one split of older data.
      now: the statistics of the same split of other data.
    """
    older = {column.path.step[0]: column for column in before.datasets[0].features}
    newer = {column.path.step[0]: column for column in now.datasets[0].features}
    pairs = {name: (older.get(name), column) for name, column in newer.items()}
    distances = {name: _distance(*pair) for name, pair in pairs.items()}
    chance = _CHANCE * math.sqrt(sum(1 / max(s.datasets[0].num_examples, 1) for s in (before, now)))
    moved = [name for name, far in distances.items() if far > max(chance, _LEAST_DISTANCE)]
    furthest = sorted(moved, key=lambda name: -distances[name])[:SHOWN_MOVES]
    return [f"{name}: {move}" for name in furthest if (move := describe_move(*pairs[name]))]


def _distance(before: Column | None, now: Column) -> float:
    """Returns a distance from 0 to 1: the largest change in the share of a value or of missing
    values.

    Numbers are compared by their means, as two normal distributions (Kolmogorov and Smirnov), and
    by their spreads, which count only if one is at most half of the other, as outliers cause
    smaller changes.
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
        distances.append(shrunk if shrunk > _LEAST_SHRINKING else 0.0)
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
