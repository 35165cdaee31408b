"""A test of whether the labels of neighbouring dates are more similar than chance explains.

If they are, each row of a random eval split has similar rows in train, from about the same date.
The metrics then describe the model on dates of the training data, not on later dates.

The test sums the labels of each date, and then of 2, 4, 8 ... consecutive dates, and correlates
each sum with the next sum. The test statistic is the largest correlation divided by its standard
error, over all date columns. The test compares it with the statistics of randomly permuted labels.
This is an exact test for independent rows with any distribution of labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.dates import may_be_dates
from components.column_types.hints import identifies, names_births, names_moments
from components.example_gen.checks.values import read_order
from components.example_gen.columns.encoded import Cell, single_values
from components.example_validator.leakage import ranks_of
from trainer_module.errors import DataError
from trainer_module.features.date_formats import find_format
from trainer_module.settings import Task

_MIN_DATES = 20
"""The minimum number of dates for the test. With fewer dates, a split by time would leave too few
dates in eval."""
_MIN_SUMS = 16
_MAX_CLASSES = 8
"""The maximum number of classes that are tested, the most frequent ones. Each date column reduces
the number."""
_PERMUTATIONS = 999
_MAX_REACHING = 1
"""The maximum number of permutations that may reach the statistic. By chance, the statistic is
among the largest 2 of 1,000 in 1 of 500 tables."""
_MIN_SHARE = 0.02
"""The minimum share of the labels' variance that is reported. In very many rows, smaller shares are
significant but harmless."""
_FORMAT_SAMPLE = 2_000
"""The number of distinct values of a column from which the date format is determined."""
_DATE_SAMPLE = 20
"""The number of distinct values of a column from which is decided whether it may hold dates."""
_EPOCH_RANGE = 631_152_000, 4_102_444_800
"""The beginning of the years 1990 and 2100, in seconds since 1970."""
_UNITS = 1, 1_000, 1_000_000, 1_000_000_000
"""The supported units of time, as the number of units in a second."""


@dataclass(frozen=True)
class SplitFinding:
    """A finding about a random split of dated rows."""

    found: str
    """The finding as a sentence."""
    misleads: bool
    """Whether the labels of neighbouring dates are more similar than chance explains."""


def review_split(
    columns: Mapping[str, pa.Array],
    labels: np.ndarray,
    task: Task,
    formats: Mapping[str, str | None],
    group: str = "",
) -> SplitFinding | None:
    """Returns a finding if a random split of dated rows misleads, or assigns whole dates to splits.

    Args:
      columns: the features, [rows] each of numbers or bytes, null where a value is missing.
      labels: the labels, or the indices of classes, [rows], with NaN for missing labels.
      formats: the date columns with their formats, or None for a column whose format is not known.
      group: the column by which rows are grouped into splits, or an empty string for no column.

    Returns:
      The finding. None if no column holds the date of a row, if `group` does not hold dates, or,
        without `group`, if the labels of neighbouring dates are not similar.
    """
    names = [group] if group else [name for name in columns if not names_births(name)]
    read = {n: _read_moments(n, columns[n], formats) for n in names if n in columns}
    dates = {name: values for name, values in read.items() if values is not None}
    known = ~np.isnan(labels)
    encode = class_labels if task.is_classification else rank_labels
    similarity = None
    if dates and known.any():
        similarity = find_similarity({n: d[known] for n, d in dates.items()}, encode(labels[known]))
    if not dates or (similarity is None and not group):
        return None
    column = group if similarity is None else similarity.column
    sentence = _describe(column, columns[column], similarity, is_split_by=bool(group))
    return SplitFinding(sentence, similarity is not None)


def _describe(
    column: str, values: pa.Array, similarity: Similarity | None, *, is_split_by: bool
) -> str:
    """Returns a sentence about a random split of dated rows, with the settings for alternatives."""
    name = json.dumps(column, ensure_ascii=False)
    key = column if column.isidentifier() else name
    dated, instead = f"column {name} holds the date of each row", ""
    if is_split_by:
        dated = f"data.split_by assigns whole dates of column {name} to the splits at random"
        instead = " in place of split_by"
    alike = ""
    if similarity is not None:
        date_count = "one date" if similarity.dates == 1 else f"{similarity.dates} dates"
        alike = (
            ", and labels of neighbouring dates are more alike than chance explains (correlation"
            f" {similarity.correlation:.2f} of {date_count} with the next): with a random split,"
            " the metrics do not show how well the model predicts rows that are newer than the"
            " training data"
        )
    notation = "" if _can_be_ordered(column, values) else ", with dates written as 2026-01-31"
    return (
        f"{dated}{alike}; to evaluate on the newest rows: data: {{order_by:"
        f" {key}}}{instead}{notation}; to keep the random split: data: {{order_by: null}}"
    )


def _can_be_ordered(column: str, values: pa.Array) -> bool:
    """Returns whether data.order_by supports the values."""
    try:
        read_order(pa.record_batch([single_values(values)], [column]), Cell("", 1), column)
    except DataError:
        return False
    return True


def _read_moments(
    name: str, values: pa.Array, formats: Mapping[str, str | None]
) -> np.ndarray | None:
    """Returns the time of each row, [rows] in any unit, NaN where it is missing. The result is None
    for a column that does not hold times.
    """
    # A column that the config ignores may be an identifier.
    is_known = name in formats and not identifies(name)
    if pa.types.is_null(values.type):
        return None
    if not pa.types.is_integer(values.type) and not pa.types.is_floating(values.type):
        return read_days(values, formats.get(name))
    numbers: np.ndarray = values.to_numpy(zero_copy_only=False).astype(np.float64)
    if is_known or (names_moments(name) and _are_moments(numbers)):
        return numbers
    return None


def _are_moments(numbers: np.ndarray) -> bool:
    """Returns whether numbers are times since 1970 in one of the `_UNITS`."""
    known = numbers[~np.isnan(numbers)]
    first, last = _EPOCH_RANGE
    return len(known) > 0 and any(
        first * unit <= known.min() and known.max() < last * unit for unit in _UNITS
    )


def read_days(texts: pa.Array, date_format: str | None = None) -> np.ndarray | None:
    """Returns the days since 1970 in a column of text, parsed in the same way as by a model.

    Args:
      texts: the values as bytes, [rows]; null where a value is missing.
      date_format: the format of the dates; None to detect it.

    Returns:
      The days, [rows], NaN where a value is not a date. None if the column does not hold dates.
    """
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.binary())
    if date_format is None and may_be_dates(_words(distinct[:_DATE_SAMPLE])):
        date_format = find_format(_words(distinct[:_FORMAT_SAMPLE]))
    if date_format is None or not len(distinct):
        return None
    # The import is here, as TensorFlow and TensorFlow Transform take seconds to import.
    import tensorflow as tf

    from trainer_module.features.calendar import read_texts

    values = tf.constant(distinct.to_pylist())[:, None]
    known = np.append(read_texts({"": values}, {"": date_format})[""].numpy()[:, 0], np.nan)
    days: np.ndarray = known[pc.fill_null(encoded.indices, len(distinct)).to_numpy()]
    return days


def _words(texts: pa.Array) -> list[str]:
    return [text.decode(errors="replace") for text in texts.to_pylist()]


@dataclass(frozen=True)
class Similarity:
    """The similarity of the labels of neighbouring dates."""

    column: str
    """The column of dates."""
    correlation: float
    """The correlation between the sum of some consecutive dates and the sum of the next dates."""
    dates: int
    """The number of dates in a sum."""
    share: float
    """The share of a label's variance that rows of neighbouring dates have in common."""


class _DatedRows:
    """The rows in the order of a date column."""

    def __init__(self, column: str, dates: np.ndarray) -> None:
        self._column = column
        rows = np.flatnonzero(~np.isnan(dates))
        self._order = rows[np.argsort(dates[rows], kind="stable")]
        ordered = dates[self._order]
        self._starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(rows)])
        self._rows = np.diff(np.append(self._starts, len(rows)))
        self.count = len(self._starts)

    def similarity(self, labels: np.ndarray) -> tuple[float, Similarity]:
        """Returns the test statistic, and the similarity with the largest correlation.

        Args:
          labels: the labels, [values, rows]; their mean may be any number.
        """
        ordered, rows = labels[:, self._order], self._rows
        sums = np.add.reduceat(ordered, self._starts, axis=1)
        sums -= rows * ordered.mean(axis=1, keepdims=True)
        correlations, dates = [(0.0, 0.0, 1)], 1
        while len(rows) >= _MIN_SUMS:
            # Each sum is divided by the root of its number of rows, so that variances are equal.
            scaled = sums / np.sqrt(rows)
            spread = float((scaled**2).sum())
            if spread:
                correlation = float((scaled[:, 1:] * scaled[:, :-1]).sum()) / spread
                correlations.append((correlation * len(rows) ** 0.5, correlation, dates))
            pairs = len(rows) // 2 * 2
            sums, rows = sums[:, :pairs:2] + sums[:, 1:pairs:2], rows[:pairs:2] + rows[1:pairs:2]
            dates *= 2
        statistic, correlation, dates = max(correlations)
        # This solves r = n s / (1 + (n - 1) s) for s, the correlation of two rows, where r is the
        # correlation of sums of n rows.
        per_sum = dates * len(self._order) / self.count
        share = correlation / (per_sum - (per_sum - 1) * correlation)
        return statistic, Similarity(self._column, correlation, dates, share)


def find_similarity(dates: Mapping[str, np.ndarray], labels: np.ndarray) -> Similarity | None:
    """Returns the similarity of labels of neighbouring dates, or None if it is not significant.

    If rows are independent, 1 of 500 tables is reported by chance, with any number of columns.

    Args:
      dates: the date columns, [rows] each in any unit, NaN where a date is missing.
      labels: the result of `rank_labels` or `class_labels`, [values, rows].
    """
    columns = [_DatedRows(name, values) for name, values in dates.items()]
    columns = [column for column in columns if column.count >= _MIN_DATES]
    if not columns:
        return None
    # With many date columns, fewer classes are tested, which limits the time of a permutation.
    labels = labels[: max(1, _MAX_CLASSES // len(columns))]

    def largest(labels: np.ndarray) -> tuple[float, Similarity]:
        return max((c.similarity(labels) for c in columns), key=lambda result: result[0])

    statistic, similarity = largest(labels)
    if similarity.share < _MIN_SHARE:
        return None
    random, reaching = np.random.default_rng(0), 0
    for _ in range(_PERMUTATIONS):
        reaching += largest(labels[:, random.permutation(labels.shape[1])])[0] >= statistic
        if reaching > _MAX_REACHING:
            return None
    return similarity


def rank_labels(labels: np.ndarray) -> np.ndarray:
    """Returns the ranks of numeric labels, [1, rows], so that large labels do not dominate."""
    return ranks_of(labels)[None]


def class_labels(labels: np.ndarray) -> np.ndarray:
    """Returns 0 or 1 for each of the most frequent classes and each row, [classes, rows].

    Of two classes, only one is returned.
    """
    classes, counts = np.unique(labels, return_counts=True)
    frequent = classes[np.argsort(-counts, kind="stable")][: min(_MAX_CLASSES, len(classes) - 1)]
    return (labels == frequent[:, None]).astype(np.float64)
