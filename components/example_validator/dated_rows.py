"""A test of whether labels of neighbouring dates are more alike than chance explains.

If they are, the rows of a random eval split lie between similar rows of train, and a metric
describes the model on days in the training data, not on later days.

The labels of each date are summed, then those of 2, 4, 8 ... consecutive dates, and each sum is
correlated with the next. The test statistic is the largest of these correlations divided by its
standard error, over all date columns. It is compared with the statistic of randomly permuted
labels: an exact test for independent rows, whatever the distribution of the labels.
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
"""The least number of dates for the test; with fewer, a split by time would leave too few to
measure on."""
_FEWEST_SUMS = 16
_MOST_CLASSES = 8
"""The number of most frequent classes that are tested; fewer if several columns hold dates."""
_PERMUTATIONS = 999
_MOST_REACHING = 1
"""The most permutations that may reach the statistic; labels are then among the largest 2 of 1,000
by chance."""
_SMALLEST_SHARE = 0.02
"""The least share of the labels' variance; with very many rows smaller shares are significant but
harmless."""
_LOOKED_AT = 2_000
"""The number of distinct texts of a column from which the date format is determined."""
_TRIED_AS_DATES = 20
_MOMENTS = 631_152_000, 4_102_444_800
"""The years 1990 and 2100, in seconds since 1970."""
_UNITS = 1, 1_000, 1_000_000, 1_000_000_000
"""The number of units in a second."""


@dataclass(frozen=True)
class SplitFinding:
    """A finding against splitting dated rows at random."""

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
    """Returns a finding if eval rows lie between train rows with similar labels.

    Args:
      columns: the features, [rows] each of numbers or bytes, null where a value is missing.
      labels: [rows], numbers of classes, or numbers; NaN where a label is missing.
      task: the task.
      formats: the date formats of columns that are known to hold dates; None if the format is
        unknown.
      group: the column whose equal values keep rows together in one split; empty if there is none.

    Returns:
      The finding; None if no column dates the rows, if the groups that are kept together are not
        dates, or if neighbouring dates are no more alike than chance explains.
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
    """Returns the effect of a random split of dated rows, and the settings for the alternatives."""
    name = json.dumps(column, ensure_ascii=False)
    key = column if column.isidentifier() else name
    dated, instead = f"column {name} dates the rows", ""
    if is_split_by:
        dated = f"data.split_by assigns whole dates of column {name} to the splits at random"
        instead = " in place of split_by"
    alike = ""
    if similarity is not None:
        date_count = "one date" if similarity.dates == 1 else f"{similarity.dates} dates"
        alike = (
            ", and labels of neighbouring dates are more alike than chance explains (correlation"
            f" {similarity.correlation:.2f} of {date_count} with the next): with a random split the"
            " metrics do not show how well the model predicts newer rows than those of train"
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
    """Returns the times of rows, [rows] in any unit, NaN if missing; None if the column holds no
    times.
    """
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
    """Returns whether numbers count seconds, or fractions of a second, since 1970."""
    known = numbers[~np.isnan(numbers)]
    first, last = _MOMENTS
    return len(known) > 0 and any(
        first * unit <= known.min() and known.max() < last * unit for unit in _UNITS
    )


def read_days(texts: pa.Array, date_format: str | None = None) -> np.ndarray | None:
    """Returns the days since 1970 in a column of text, as the graph of a model parses them.

    Args:
      texts: [rows] of bytes, null where a value is missing.
      date_format: the format of the dates; detected if it is None.

    Returns:
      [rows], NaN where a value is not a date; None if the column does not hold dates.
    """
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.binary())
    if date_format is None and may_be_dates(_words(distinct[:_TRIED_AS_DATES])):
        date_format = find_format(_words(distinct[:_LOOKED_AT]))
    if date_format is None or not len(distinct):
        return None
    # These imports load TensorFlow and TensorFlow Transform, which takes seconds.
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
    """The correlation between the sums of some consecutive dates and of the next."""
    dates: int
    """The number of dates in a sum."""
    share: float
    """The share of a label's variance that rows of neighbouring dates have in common."""


class _DatedRows:
    """The rows in the order of a column of dates."""

    def __init__(self, column: str, dates: np.ndarray) -> None:
        self._column = column
        rows = np.flatnonzero(~np.isnan(dates))
        self._order = rows[np.argsort(dates[rows], kind="stable")]
        ordered = dates[self._order]
        self._starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(rows)])
        self._rows = np.diff(np.append(self._starts, len(rows)))
        self.count = len(self._starts)

    def similarity(self, labels: np.ndarray) -> tuple[float, Similarity]:
        """Returns the largest correlation divided by its standard error, and its description.

        Args:
          labels: [values, rows], of any mean.
        """
        ordered, rows = labels[:, self._order], self._rows
        sums = np.add.reduceat(ordered, self._starts, axis=1)
        sums -= rows * ordered.mean(axis=1, keepdims=True)
        correlations, dates = [(0.0, 0.0, 1)], 1
        while len(rows) >= _FEWEST_SUMS:
            # Sums divided by the root of their number of rows have the same variance.
            scaled = sums / np.sqrt(rows)
            spread = float((scaled**2).sum())
            if spread:
                correlation = float((scaled[:, 1:] * scaled[:, :-1]).sum()) / spread
                correlations.append((correlation * len(rows) ** 0.5, correlation, dates))
            pairs = len(rows) // 2 * 2
            sums, rows = sums[:, :pairs:2] + sums[:, 1:pairs:2], rows[:pairs:2] + rows[1:pairs:2]
            dates *= 2
        statistic, correlation, dates = max(correlations)
        # If all pairs of rows in a sum have the same correlation s: r = n s / (1 + (n - 1) s).
        per_sum = dates * len(self._order) / self.count
        share = correlation / (per_sum - (per_sum - 1) * correlation)
        return statistic, Similarity(self._column, correlation, dates, share)


def find_similarity(dates: Mapping[str, np.ndarray], labels: np.ndarray) -> Similarity | None:
    """Returns the similarity of labels of neighbouring dates; None if it is chance or negligible.

    Of tables with independent rows, 1 in 500 is reported by chance, however many columns it has.

    Args:
      dates: the columns of dates, [rows] each, in any unit, NaN where a date is missing.
      labels: [values, rows], from `rank_labels` or `class_labels`.
    """
    columns = [_DatedRows(name, values) for name, values in dates.items()]
    columns = [column for column in columns if column.count >= _FEWEST_DATES]
    if not columns:
        return None
    # Limits the time of a permutation, which grows with the number of columns.
    labels = labels[: max(1, _MOST_CLASSES // len(columns))]

    def largest(labels: np.ndarray) -> tuple[float, Similarity]:
        return max((c.similarity(labels) for c in columns), key=lambda result: result[0])

    statistic, similarity = largest(labels)
    if similarity.share < _SMALLEST_SHARE:
        return None
    random, reaching = np.random.default_rng(0), 0
    for _ in range(_PERMUTATIONS):
        reaching += largest(labels[:, random.permutation(labels.shape[1])])[0] >= statistic
        if reaching > _MOST_REACHING:
            return None
    return similarity


def rank_labels(labels: np.ndarray) -> np.ndarray:
    """Returns numbers as their ranks, [1, rows], so that a few large ones do not dominate."""
    return ranks_of(labels)[None]


def class_labels(labels: np.ndarray) -> np.ndarray:
    """Returns indicators of the most frequent classes, [classes, rows]; for two classes only
    one.
    """
    classes, counts = np.unique(labels, return_counts=True)
    frequent = classes[np.argsort(-counts, kind="stable")][: min(_MOST_CLASSES, len(classes) - 1)]
    return (labels == frequent[:, None]).astype(np.float64)
