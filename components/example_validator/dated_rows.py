"""Whether rows with neighbouring dates have labels that are more alike than chance explains.

Where they are, rows of eval that are drawn at random lie among rows of train that are like them,
and a metric says what a model knows of days it has seen, not of days to come.

The rows of each date are summed, then those of 2, 4, 8 ... dates that follow one another, and each
sum is correlated with the next. What counts is the largest of these correlations by its standard
error, of all columns of dates; it is compared with what the same labels give when they are dealt to
the rows at random, which is exact for rows that are independent, whatever their labels are like.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.dates import may_be_dates
from components.column_types.hints import names_births, names_moments
from components.example_gen.checks.values import read_order
from components.example_gen.columns.encoded import Cell, single_values
from components.example_validator.leakage import ranks_of
from trainer_module.errors import DataError
from trainer_module.features.date_formats import find_format
from trainer_module.settings import Task

_FEWEST_DATES = 20
"""Of fewer, a split by time would hardly leave any to be measured."""
_FEWEST_SUMS = 16
_MOST_CLASSES = 8
"""Of a label, the most frequent ones; fewer where several columns hold dates."""
_DEALS = 999
_MOST_AS_LARGE = 1
"""So many of the random deals may come as far: 2 of 1,000 times the labels do by chance."""
_SMALLEST_SHARE = 0.02
"""Of the labels' variance: among very many rows less than that is found, and misleads nobody."""
_LOOKED_AT = 2_000
"""Of the different texts of a column, to find out how dates are written."""
_TRIED_AS_DATES = 20
_MOMENTS = 631_152_000, 4_102_444_800
"""1990 and 2100, in seconds since 1970."""
_UNITS = 1, 1_000, 1_000_000, 1_000_000_000
"""Of a second."""


@dataclass(frozen=True)
class SplitFinding:
    """What speaks against splitting dated rows at random."""

    found: str
    misleads: bool
    """Whether labels of neighbouring dates are more alike than chance explains."""


def review_split(
    columns: Mapping[str, pa.Array],
    labels: np.ndarray,
    task: Task,
    formats: Mapping[str, str | None],
    group: str = "",
) -> SplitFinding | None:
    """Says where rows of eval lie between rows of train whose labels are like theirs.

    Args:
      columns: the features, [rows] each of numbers or bytes, null where a value is missing.
      labels: [rows], numbers of classes, or numbers; NaN where there is none.
      task: what is predicted.
      formats: how dates are written in columns that are known to hold some; None if unknown.
      group: the column whose equal values keep rows together in one split; empty if none does.

    Returns:
      None where no column dates the rows, where groups are kept together that are no dates, and
      where neighbouring dates are no more alike than chance explains.
    """
    names = [group] if group else [name for name in columns if not names_births(name)]
    read = {n: _read_moments(n, columns[n], formats) for n in names if n in columns}
    dates = {name: values for name, values in read.items() if values is not None}
    known = ~np.isnan(labels)
    encode = class_labels if task.is_classification else rank_labels
    likeness = None
    if dates and known.any():
        likeness = find_likeness({n: d[known] for n, d in dates.items()}, encode(labels[known]))
    if not dates or (likeness is None and not group):
        return None
    column = group if likeness is None else likeness.column
    found = _describe(column, columns[column], likeness, is_split_by=bool(group))
    return SplitFinding(found, likeness is not None)


def _describe(
    column: str, values: pa.Array, likeness: Likeness | None, *, is_split_by: bool
) -> str:
    """What a random split of dated rows does, and the lines that say what is meant."""
    name = json.dumps(column, ensure_ascii=False)
    key = column if column.isidentifier() else name
    dated, instead = f"column {name} dates the rows", ""
    if is_split_by:
        dated = f"data.split_by deals whole dates of column {name} to the splits at random"
        instead = " in place of split_by"
    alike = ""
    if likeness is not None:
        of = "one date" if likeness.dates == 1 else f"{likeness.dates} dates"
        alike = (
            f", and labels of neighbouring dates are more alike than chance explains (correlation "
            f"{likeness.correlation:.2f} of {of} with the next): on a random split the metrics say "
            "little of rows that are newer than those of train"
        )
    written = "" if _can_be_ordered(column, values) else ", with dates written as 2026-01-31"
    return (
        f"{dated}{alike}; to evaluate on the newest rows: data: {{order_by: {key}}}{instead}"
        f"{written}; if a random split is meant: data: {{order_by: null}}"
    )


def _can_be_ordered(column: str, values: pa.Array) -> bool:
    """Returns whether data.order_by can read dates."""
    try:
        read_order(pa.record_batch([single_values(values)], [column]), Cell("", 1), column)
    except DataError:
        return False
    return True


def _read_moments(
    name: str, values: pa.Array, formats: Mapping[str, str | None]
) -> np.ndarray | None:
    """When rows are from, [rows] in any unit, NaN where that is missing; None if it is not said."""
    is_known = name in formats
    if pa.types.is_null(values.type):
        return None
    if not pa.types.is_integer(values.type) and not pa.types.is_floating(values.type):
        return read_days(values, formats.get(name))
    numbers: np.ndarray = values.to_numpy(zero_copy_only=False).astype(np.float64)
    if is_known or (names_moments(name) and _are_moments(numbers)):
        return numbers
    return None


def _are_moments(numbers: np.ndarray) -> bool:
    """Returns whether numbers count seconds, or parts of a second, since 1970."""
    known = numbers[~np.isnan(numbers)]
    first, last = _MOMENTS
    return len(known) > 0 and any(
        first * unit <= known.min() and known.max() < last * unit for unit in _UNITS
    )


def read_days(texts: pa.Array, date_format: str | None = None) -> np.ndarray | None:
    """Days since 1970 that are written in a column of text, as the graph of a model reads them.

    Args:
      texts: [rows] of bytes, null where a value is missing.
      date_format: of the dates; found if it is not given.

    Returns:
      [rows], NaN for what is no date; None where values are none.
    """
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.binary())
    if date_format is None and may_be_dates(_words(distinct[:_TRIED_AS_DATES])):
        date_format = find_format(_words(distinct[:_LOOKED_AT]))
    if date_format is None or not len(distinct):
        return None
    # They import TensorFlow and its Transform, which takes seconds.
    import tensorflow as tf

    from trainer_module.features.calendar import read_texts

    values = tf.constant(distinct.to_pylist())[:, None]
    known = np.append(read_texts({"": values}, {"": date_format})[""].numpy()[:, 0], np.nan)
    days: np.ndarray = known[pc.fill_null(encoded.indices, len(distinct)).to_numpy()]
    return days


def _words(texts: pa.Array) -> list[str]:
    return [text.decode(errors="replace") for text in texts.to_pylist()]


@dataclass(frozen=True)
class Likeness:
    """How alike the labels of neighbouring dates are."""

    column: str
    """The dates."""
    correlation: float
    """Between the sums of some dates and of the next."""
    dates: int
    """How many dates are summed."""
    share: float
    """Of the variance of a row's label, what rows of neighbouring dates have in common."""


class _Dates:
    """Rows in the order of a column of dates."""

    def __init__(self, column: str, dates: np.ndarray) -> None:
        self._column = column
        rows = np.flatnonzero(~np.isnan(dates))
        self._order = rows[np.argsort(dates[rows], kind="stable")]
        ordered = dates[self._order]
        self._starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(rows)])
        self._rows = np.diff(np.append(self._starts, len(rows)))
        self.count = len(self._starts)

    def likeness(self, labels: np.ndarray) -> tuple[float, Likeness]:
        """Returns the largest correlation by its standard error, and what it is of.

        Args:
          labels: [values, rows], of any mean.
        """
        ordered, rows = labels[:, self._order], self._rows
        sums = np.add.reduceat(ordered, self._starts, axis=1)
        sums -= rows * ordered.mean(axis=1, keepdims=True)
        found, dates = [(0.0, 0.0, 1)], 1
        while len(rows) >= _FEWEST_SUMS:
            # As far from 0 by chance, however many rows are summed.
            far = sums / np.sqrt(rows)
            spread = float((far**2).sum())
            if spread:
                correlation = float((far[:, 1:] * far[:, :-1]).sum()) / spread
                found.append((correlation * len(rows) ** 0.5, correlation, dates))
            pairs = len(rows) // 2 * 2
            sums, rows = sums[:, :pairs:2] + sums[:, 1:pairs:2], rows[:pairs:2] + rows[1:pairs:2]
            dates *= 2
        errors, correlation, dates = max(found)
        # As if rows of a sum were correlated alike: r = n s / (1 + (n - 1) s).
        per_sum = dates * len(self._order) / self.count
        share = correlation / (per_sum - (per_sum - 1) * correlation)
        return errors, Likeness(self._column, correlation, dates, share)


def find_likeness(dates: Mapping[str, np.ndarray], labels: np.ndarray) -> Likeness | None:
    """Finds out whether labels are more alike the nearer their dates are.

    None where that is chance, or of little weight.

    By chance it finds so in 1 of 500 tables of independent rows, however many columns there are.

    Args:
      dates: columns, [rows] each, in any unit, NaN where there is none.
      labels: [values, rows], as `rank_labels` and `class_labels` make them.
    """
    columns = [_Dates(name, values) for name, values in dates.items()]
    columns = [column for column in columns if column.count >= _FEWEST_DATES]
    if not columns:
        return None
    # So that a deal takes about as long for several columns as for one.
    labels = labels[: max(1, _MOST_CLASSES // len(columns))]

    def largest(labels: np.ndarray) -> tuple[float, Likeness]:
        return max((c.likeness(labels) for c in columns), key=lambda found: found[0])

    errors, likeness = largest(labels)
    if likeness.share < _SMALLEST_SHARE:
        return None
    random, as_large = np.random.default_rng(0), 0
    for _ in range(_DEALS):
        as_large += largest(labels[:, random.permutation(labels.shape[1])])[0] >= errors
        if as_large > _MOST_AS_LARGE:
            return None
    return likeness


def rank_labels(labels: np.ndarray) -> np.ndarray:
    """Numbers as their ranks, [1, rows], so that a few large ones do not decide."""
    return ranks_of(labels)[None]


def class_labels(labels: np.ndarray) -> np.ndarray:
    """Returns whether a row is of each of the most frequent classes, [classes, rows]; of two of
    one.
    """
    classes, counts = np.unique(labels, return_counts=True)
    frequent = classes[np.argsort(-counts, kind="stable")][: min(_MOST_CLASSES, len(classes) - 1)]
    return (labels == frequent[:, None]).astype(np.float64)
