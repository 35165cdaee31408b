"""What became of a column between two sets of statistics, in figures that people can picture."""

from __future__ import annotations

import math
from typing import TypeAlias

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.example_validator.rows import show_value

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList
Column: TypeAlias = statistics_pb2.FeatureNameStatistics

SHOWN_MOVES = 3
"""So many values of a column, or columns, are named: those that moved most."""
_LEAST_SHARE = 0.005
"""A share that moved by less looks the same, written out."""
_LEAST_DISTANCE = 0.05
"""What moved by less is no explanation."""
_CHANCE = 1.95
"""Times the root of 1/n + 1/m: what the distance of two samples of one distribution exceeds once
in a thousand times (Smirnov, 1948)."""
_LEAST_SHRINKING = 0.5
_LEAST_SPREAD = 1.25
"""A standard deviation that grew or shrank by less is not told."""


def find_column(statistics: Statistics, name: str) -> Column | None:
    """The statistics of a column; None if there are none of it."""
    found = (f for f in statistics.datasets[0].features if list(f.path.step) == [name])
    return next(found, None)


def describe_move(before: Column | None, now: Column | None) -> str:
    """Such as `'apple' from 41 % to 12 %, 'melon' new with 30 %`, or `mean 38.2 to 61`.

    Empty if nothing that can be told in such words has changed.
    """
    if before is None or now is None:
        return "" if before is now else "the column is new" if now else "the column is gone"
    kinds = before.WhichOneof("stats"), now.WhichOneof("stats")
    if kinds == ("string_stats", "string_stats"):
        parts = _moves_of_values(before, now)
    elif kinds == ("num_stats", "num_stats"):
        parts = _moves_of_numbers(before.num_stats, now.num_stats)
    else:
        parts = ["its values are of another type"] if kinds[0] != kinds[1] else []
    return ", ".join([*parts, *_move_of_missing(before, now)])


def most_moved(before: Statistics, now: Statistics) -> list[str]:
    """The columns that moved most, and more than by chance, each with figures, the furthest first.

    Args:
      before: of one split of older data.
      now: of the same split of other data.
    """
    older = {column.path.step[0]: column for column in before.datasets[0].features}
    pairs = {
        (name := column.path.step[0]): (older.get(name), column)
        for column in now.datasets[0].features
    }
    distances = {name: _distance(*pair) for name, pair in pairs.items()}
    chance = _CHANCE * math.sqrt(sum(1 / max(s.datasets[0].num_examples, 1) for s in (before, now)))
    moved = [name for name, far in distances.items() if far > max(chance, _LEAST_DISTANCE)]
    furthest = sorted(moved, key=lambda name: -distances[name])[:SHOWN_MOVES]
    return [f"{name}: {move}" for name in furthest if (move := describe_move(*pairs[name]))]


def _distance(before: Column | None, now: Column | None) -> float:
    """From 0 to 1: the share of rows that a value, a gap or the middle of the numbers moved by."""
    if before is None or now is None or before.WhichOneof("stats") != now.WhichOneof("stats"):
        return 1.0
    distances = [abs(_missing(now) - _missing(before))]
    if now.WhichOneof("stats") == "string_stats":
        old, new = _shares(before), _shares(now)
        distances += [abs(new.get(v, 0.0) - old.get(v, 0.0)) for v in {**old, **new}]
    elif now.WhichOneof("stats") == "num_stats":
        distances += _distances_of_numbers(before.num_stats, now.num_stats)
    return max(distances)


def _distances_of_numbers(
    before: statistics_pb2.NumericStatistics, now: statistics_pb2.NumericStatistics
) -> list[float]:
    """By the means, as of two normal distributions (Kolmogorov and Smirnov), and by the spreads.

    A spread counts from half or double on: an outlier changes it by less.
    """
    spread = math.hypot(before.std_dev, now.std_dev) / math.sqrt(2)
    if not spread:
        return [float(before.mean != now.mean)]
    far = math.erf(abs(now.mean - before.mean) / spread / math.sqrt(8))
    shrunk = 1 - min(before.std_dev, now.std_dev) / max(before.std_dev, now.std_dev)
    return [far, shrunk if shrunk > _LEAST_SHRINKING else 0.0]


def _moves_of_values(before: Column, now: Column) -> list[str]:
    old, new = _shares(before), _shares(now)
    moves = {value: new.get(value, 0.0) - old.get(value, 0.0) for value in {**old, **new}}
    most = sorted(moves, key=lambda value: (-abs(moves[value]), value))[:SHOWN_MOVES]
    return [
        _move_of_value(value, old.get(value), new.get(value))
        for value in most
        if abs(moves[value]) >= _LEAST_SHARE
    ]


def _move_of_value(value: str, old: float | None, new: float | None) -> str:
    shown = show_value(value)
    if old is None:
        return f"{shown} new with {_percent(new or 0.0)}"
    if new is None:
        return f"{shown} gone, had {_percent(old)}"
    return f"{shown} from {_percent(old)} to {_percent(new)}"


def _shares(column: Column) -> dict[str, float]:
    """By value, its share of all values that are there."""
    total = _common(column).tot_num_values
    buckets = column.string_stats.rank_histogram.buckets
    return {bucket.label: bucket.sample_count / total for bucket in buckets} if total else {}


def _moves_of_numbers(
    before: statistics_pb2.NumericStatistics, now: statistics_pb2.NumericStatistics
) -> list[str]:
    means = [f"{one.mean:.4g}" for one in (before, now)]
    parts = [f"mean {means[0]} to {means[1]}"] if means[0] != means[1] else []
    spreads = sorted([before.std_dev, now.std_dev])
    if spreads[1] > spreads[0] * _LEAST_SPREAD:
        parts.append(f"standard deviation {before.std_dev:.4g} to {now.std_dev:.4g}")
    return parts


def _move_of_missing(before: Column, now: Column) -> list[str]:
    old, new = _missing(before), _missing(now)
    is_told = not math.isclose(old, new, abs_tol=_LEAST_SHARE)
    return [f"missing {_percent(old)} to {_percent(new)}"] if is_told else []


def _missing(column: Column) -> float:
    common = _common(column)
    rows = common.num_missing + common.num_non_missing
    return float(common.num_missing / rows) if rows else 0.0


def _common(column: Column) -> statistics_pb2.CommonStatistics:
    return getattr(column, column.WhichOneof("stats")).common_stats


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.1 else f"{100 * share:.0f} %"
