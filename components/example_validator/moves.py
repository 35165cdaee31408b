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
    parts = [f"mean {before.mean:.4g} to {now.mean:.4g}"]
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
