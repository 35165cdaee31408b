"""Summarises TFDV's statistics of columns by split, for the report."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from components.evaluator.explanation.record import Bins
from pipeline.records.details import ColumnDetails, SplitStatistics

MAX_COLUMNS = 200
"""The maximum number of columns with details."""
LAST_SPAN = "last span"
"""The split of the newest span, for a window of several spans."""
_LABEL = "label"
TRAIN, _EVAL = "train", "eval"
_BINS = 20
_TOP_VALUES = 10
_MAX_LENGTH = 60
"""The maximum length of a value, in characters."""
_RANGES = 1.5
"""Outliers are farther from the middle 80 % of the numbers than this multiple of their range."""

Column: TypeAlias = Any
"""TFDV's `FeatureNameStatistics`."""
Splits: TypeAlias = Mapping[str, Sequence[Any]]
"""TFDV's `DatasetFeatureStatisticsList`s of each split; a split of a window has one per span."""
_Columns: TypeAlias = Mapping[str, Sequence[Column]]
"""The statistics of one column by split."""


def summarise_columns(
    splits: Splits, types: Mapping[str, str], private: Collection[str], before: Any = None
) -> tuple[list[ColumnDetails], int]:
    """Returns the details of columns, beginning with the label, and the number of other columns.

    If there are more than MAX_COLUMNS columns, those with the largest distances and the most
    missing values are chosen.

    Args:
      splits: the statistics.
      types: the types of columns, by name. The type of a column without an entry follows from its
        statistics.
      private: the columns whose values are left out.
      before: the statistics of the span before the newest, split train; None without this span.
    """
    by_name: dict[str, dict[str, list[Column]]] = {}
    for split, parts in splits.items():
        for column in (column for part in parts for column in part.datasets[0].features):
            by_name.setdefault(_name(column), {}).setdefault(split, []).append(column)
    older = {_name(column): [column] for column in before.datasets[0].features} if before else {}
    names = sorted(by_name, key=lambda n: (types.get(n) != _LABEL, -_importance(by_name[n]), n))
    details = [
        _describe(name, by_name[name], types, name in private, older.get(name))
        for name in names[:MAX_COLUMNS]
    ]
    return details, len(names) - len(details)


def clean(text: str) -> str:
    """Returns a value in at most 60 characters, without characters that control or hide text."""
    shown = (
        text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
    return "".join("\ufffd" if unicodedata.category(c)[0] == "C" else c for c in shown)


def _name(column: Column) -> str:
    return ".".join(column.path.step) or str(column.name)


def _importance(splits: _Columns) -> float:
    """Returns the larger of a column's share of missing values and its approximate distance."""
    missing = max(_missing(columns) for columns in splits.values())
    if TRAIN not in splits or _EVAL not in splits:
        return missing
    left, right = splits[TRAIN], splits[_EVAL]
    if not _is_numeric([left, right]):
        return max(missing, _distance(left, right) or 0.0)
    # Histograms of thousands of columns would take seconds.
    old, new = left[-1].num_stats, right[-1].num_stats
    spread = math.hypot(old.std_dev, new.std_dev)
    shift = abs(old.mean - new.mean) / spread if spread else float(old.mean != new.mean)
    return max(missing, math.erf(shift / 2))


def _describe(
    name: str,
    splits: _Columns,
    types: Mapping[str, str],
    is_private: bool,
    older: Sequence[Column] | None,
) -> ColumnDetails:
    newest = splits.get(LAST_SPAN) or splits.get(TRAIN)
    kind = types.get(name) or ("numeric" if _is_numeric(splits.values()) else "categorical")
    shows_values = not is_private and kind != "image"
    edges = _edges(list(splits.values())) if shows_values else None
    return ColumnDetails(
        name=name,
        type=kind,
        splits={split: _summarise(c, edges, shows_values) for split, c in splits.items()},
        distance=_distance(splits.get(TRAIN), splits.get(_EVAL)),
        drift=_distance(older, newest),
    )


def _summarise(
    columns: Sequence[Column], edges: np.ndarray | None, shows_values: bool
) -> SplitStatistics:
    """Returns the statistics of a column in a split."""
    common = [_common(column) for column in columns]
    summary = SplitStatistics(
        rows=sum(c.num_missing + c.num_non_missing for c in common), missing=_missing(columns)
    )
    if not shows_values or not any(c.tot_num_values for c in common):
        return summary
    if _is_numeric([columns]):
        return summary.model_copy(update=_summarise_numbers(columns, edges))
    shares = _shares(columns)
    top = sorted(shares, key=lambda value: (-shares[value], value))[:_TOP_VALUES]
    strings = [column.string_stats for column in columns]
    lengths = [s.avg_length for s in strings]
    return summary.model_copy(
        update={
            # The values of several spans may be the same.
            "unique": int(strings[0].unique) if len(strings) == 1 else None,
            "top": [(clean(value), _round(shares[value])) for value in top],
            "length": _finite(np.average(lengths, weights=[c.tot_num_values for c in common])),
        }
    )


def _summarise_numbers(columns: Sequence[Column], edges: np.ndarray | None) -> dict[str, Any]:
    numbers = [column.num_stats for column in columns]
    counts = np.array([_common(column).tot_num_values for column in columns], float)
    means = np.array([n.mean for n in numbers])
    mean = np.average(means, weights=counts)
    variances = np.array([n.std_dev for n in numbers]) ** 2 + (means - mean) ** 2
    zeros = sum(n.num_zeros for n in numbers) / counts.sum()
    histogram = None
    if edges is not None:
        binned = np.diff([0.0, *_shares_below(columns, edges[1:-1]), 1.0]) * counts.sum()
        rounded = [round(float(count), 1) for count in binned]
        histogram = Bins(edges=[_round(edge) for edge in edges], counts=rounded)
    return {
        "mean": _finite(mean),
        "std": _finite(np.sqrt(np.average(variances, weights=counts))),
        "min": _finite(min(n.min for n in numbers)),
        "median": _finite(numbers[0].median) if len(numbers) == 1 else None,
        "max": _finite(max(n.max for n in numbers)),
        "zeros": _finite(zeros),
        "histogram": histogram,
    }


def _common(column: Column) -> Any:
    """Returns the counts that columns of all types have."""
    return getattr(column, column.WhichOneof("stats")).common_stats


def _missing(columns: Sequence[Column]) -> float:
    common = [_common(column) for column in columns]
    missing = sum(c.num_missing for c in common)
    return _round(missing / max(missing + sum(c.num_non_missing for c in common), 1))


def _is_numeric(splits: Collection[Sequence[Column]]) -> bool:
    return all(c.WhichOneof("stats") == "num_stats" for columns in splits for c in columns)


def _distance(left: Sequence[Column] | None, right: Sequence[Column] | None) -> float | None:
    """Returns the distance of two distributions: the Jensen-Shannon divergence of numbers in bits,
    or the largest difference between the shares of a value (L-infinity) of strings.

    None if a distribution is missing or has no values, or the types differ.
    """
    if left is None or right is None:
        return None
    if not all(sum(_common(c).tot_num_values for c in columns) for columns in (left, right)):
        return None
    if _is_numeric([left, right]):
        edges = _edges([left, right])
        if edges is None:
            return 0.0
        inner = edges[1:-1]
        p, q = (np.diff([0.0, *_shares_below(columns, inner), 1.0]) for columns in (left, right))
        return _finite(_divergence(p, (p + q) / 2) / 2 + _divergence(q, (p + q) / 2) / 2)
    if any(c.WhichOneof("stats") == "num_stats" for c in (*left, *right)):
        return None
    old, new = _shares(left), _shares(right)
    return _round(max((abs(old.get(v, 0) - new.get(v, 0)) for v in {**old, **new}), default=0.0))


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Returns the Kullback-Leibler divergence of two distributions, in bits."""
    occurs = p > 0
    return float(np.sum(p[occurs] * np.log2(p[occurs] / q[occurs])))


def _shares(columns: Sequence[Column]) -> dict[str, float]:
    """Returns the share of each value, as far as TFDV has counted it."""
    total = sum(_common(column).tot_num_values for column in columns)
    counts: dict[str, float] = {}
    for bucket in (b for c in columns for b in c.string_stats.rank_histogram.buckets):
        counts[bucket.label] = counts.get(bucket.label, 0.0) + bucket.sample_count
    return {value: count / total for value, count in counts.items()} if total else {}


def _edges(splits: Sequence[Sequence[Column]]) -> np.ndarray | None:
    """Returns the bounds of equally wide bins for all splits of a column.

    The bins extend over all numbers except for outliers, which the first and the last bin count.
    None if the column is not numeric or has less than two values.
    """
    columns = [c for columns in splits for c in columns if _common(c).tot_num_values]
    if not columns or not _is_numeric([columns]):
        return None
    low = min(column.num_stats.min for column in columns)
    high = max(column.num_stats.max for column in columns)
    histograms = [h for c in columns for h in c.num_stats.histograms if h.type == h.QUANTILES]
    points = [(shares, numbers) for numbers, shares in map(_points, histograms) if len(numbers)]
    deciles = [np.interp([0.1, 0.9], *known) for known in points]
    lowest = min((first for first, _ in deciles), default=low)
    highest = max((last for _, last in deciles), default=high)
    margin = _RANGES * (highest - lowest)
    if margin > 0:
        low, high = max(low, lowest - margin), min(high, highest + margin)
    if not (math.isfinite(high - low) and high > low):
        return None
    return np.linspace(low, high, _BINS + 1)


def _points(histogram: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the known points of a cumulative distribution: numbers, and the shares up to them."""
    if not (buckets := histogram.buckets):
        return np.zeros(0), np.zeros(0)
    numbers = np.array([buckets[0].low_value, *(b.high_value for b in buckets)])
    counts = np.cumsum([0.0, *(b.sample_count for b in buckets)])
    is_finite = np.isfinite(numbers)
    return numbers[is_finite], counts[is_finite] / max(counts[-1], 1.0)


def _shares_below(columns: Sequence[Column], edges: np.ndarray) -> np.ndarray:
    """Returns the share of the numbers that are smaller than each edge."""
    counts = [_common(column).tot_num_values for column in columns]
    return np.average([_share_below(c, edges) for c in columns], axis=0, weights=counts)


def _share_below(column: Column, edges: np.ndarray) -> np.ndarray:
    # Quantiles are exact even with outliers; bins of equal width show gaps between the numbers.
    pairs = [_points(histogram) for histogram in column.num_stats.histograms]
    numbers = np.concatenate([[-np.inf], *(pair[0] for pair in pairs), [np.inf]])
    shares = np.concatenate([[0.0], *(pair[1] for pair in pairs), [1.0]])
    order = np.lexsort((shares, numbers))
    numbers, shares = numbers[order], np.maximum.accumulate(shares[order])
    after = np.clip(np.searchsorted(numbers, edges, "left"), 1, len(numbers) - 1)
    left, right = numbers[after - 1], numbers[after]
    is_between = np.isfinite(left) & np.isfinite(right)
    position = np.divide(edges - left, right - left, out=np.ones(len(edges)), where=is_between)
    return shares[after - 1] + np.where(np.isfinite(left), position, 0.0) * (
        shares[after] - shares[after - 1]
    )


def _round(value: float) -> float:
    """Returns a number with six significant digits."""
    return float(f"{value:.6g}")


def _finite(value: float) -> float | None:
    """Returns a rounded number, or None for infinity and NaN, which JSON lacks."""
    return _round(value) if math.isfinite(value) else None
