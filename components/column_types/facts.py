"""What a column's values tell of it; free of TensorFlow.

What is the same, missing, or different in the rows is told by the statistics, which have seen each
row; the rest by a sample from all over the data. None of it depends on the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.column_types.dates import DAYS, Dates, is_day

_MOST_EXAMPLES = 2_000
"""Of the different values of a column."""
_UNSPACED = r"(?:[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}][^\s]*){4}"
"""What words are written in that no spaces stand between: some of it in a row."""
_NEARLY_ALL = 0.99
_EXACT = {pa.float32(): 2**24, pa.float64(): 2**53}
"""Up to here numbers of a type hold every whole one."""


@dataclass(frozen=True)
class Counts:
    """What the statistics of a split, in which every row counts, tell of a column."""

    rows: int
    known: int
    """Rows with a value."""
    longest: int
    """Values in the row that has the most of them."""
    distinct: int | None = None
    """Different values of text; None where the statistics cannot tell."""
    frequent: tuple[str, ...] = ()
    """Values of text, the most frequent ones first: all, or as many as the statistics keep."""
    low: float = math.nan
    """Of numbers; NaN of text."""
    high: float = math.nan

    @property
    def is_constant(self) -> bool:
        """Whether all values are the same, and no row is without."""
        is_same = self.low == self.high if self.distinct is None else self.distinct == 1
        return is_same and 0 < self.rows == self.known


@dataclass(frozen=True)
class Facts:
    """A column as it is in the rows of the train split, or in a sample of them."""

    name: str
    is_text: bool
    rows: int
    """Those of the split; of the sample where nothing is known of the others."""
    total_rows: int
    """Those of all splits, as far as that is known."""
    known: int
    """Rows with a value, of `rows`."""
    distinct: int
    """Different values in `known` rows; of numbers, in `seen` rows."""
    seen: int = 0
    """Rows of the sample with a value."""
    examples: tuple[str, ...] = ()
    """Different values of text, the most frequent ones first."""
    mean_length: float = 0.0
    """Characters of a text."""
    mean_spaces: float = 0.0
    usual_length: int = 0
    """Characters that nearly all texts have at most."""
    usual_words: int = 0
    has_words: bool = True
    """Whether spaces stand between the words: of most texts, as far as their script tells."""
    is_integer: bool = False
    """Whether numbers are of a type that has no fractions."""
    is_whole: bool = False
    """Whether all numbers are."""
    is_exact: bool = True
    """Whether numbers are small enough for different ones to stay different."""
    low: float = 0.0
    high: float = 0.0
    are_days: bool = False
    """Whether all numbers are days in digits, such as 20260131."""
    negative: int = 0
    """Different numbers below 0."""
    dates: Dates | None = None
    """How they are written in all rows there are; None of what are none."""
    longest: int = 0
    """Values in the longest list; 0 where a row has one value."""

    @property
    def own_values(self) -> float:
        """The share of the rows with a value that would have one of their own."""
        return self.distinct / max(self.known, 1)

    @property
    def has_gaps(self) -> bool:
        """Whether some rows have no value."""
        return self.known < self.rows


def look_at(
    columns: Mapping[str, pa.Array],
    dates: Mapping[str, Dates],
    total_rows: int = 0,
    counts: Mapping[str, Counts] | None = None,
) -> list[Facts]:
    """Returns the facts about columns, but for those that hold other bytes than text.

    Args:
      columns: of numbers or bytes, by name: [rows] each, null where a value is missing.
      dates: what is known of columns of dates.
      total_rows: of all the data, where `columns` are a part of it.
      counts: what is known of all rows of the split that `columns` are a sample of.
    """
    counts = counts or {}
    facts = (_look(name, values, total_rows) for name, values in columns.items())
    return [
        replace(_in_all_rows(one, counts.get(one.name)), dates=dates.get(one.name))
        for one in facts
        if one is not None
    ]


def look_at_lists(
    columns: Mapping[str, tuple[np.ndarray, pa.Array]],
    counts: Mapping[str, Counts] | None = None,
) -> list[Facts]:
    """Returns the facts about columns of lists, which count values instead of rows.

    Args:
      columns: how many values each row has, and all of them, by name.
      counts: what is known of all rows of the split that `columns` are a sample of.
    """
    found = []
    for name, (lengths, values) in columns.items():
        facts, whole = _look(name, values, 0), (counts or {}).get(name)
        if facts is not None:
            longest = max(int(lengths.max(initial=0)), whole.longest if whole else 0)
            distinct = max(facts.distinct, (whole.distinct or 0) if whole else 0)
            found.append(replace(facts, longest=longest, distinct=distinct))
    return found


def _in_all_rows(facts: Facts, counts: Counts | None) -> Facts:
    """Returns the facts with what the statistics know better than a sample."""
    if counts is None:
        return facts
    if facts.is_text:
        if counts.distinct is None:
            return facts
        others = [value for value in facts.examples if value not in {*counts.frequent}]
        has_all = len(counts.frequent) >= counts.distinct
        return replace(
            facts,
            rows=counts.rows,
            known=counts.known,
            distinct=counts.distinct,
            examples=(*counts.frequent, *([] if has_all else others))[:_MOST_EXAMPLES],
        )
    low, high = counts.low, counts.high
    is_exact = facts.is_integer or max(-low, high) <= _EXACT[pa.float32()]
    return replace(
        facts,
        rows=counts.rows,
        known=counts.known,
        distinct=facts.distinct if facts.distinct > 1 else (low < high) + min(counts.known, 1),
        is_exact=facts.is_exact and is_exact,
        low=low,
        high=high,
        are_days=facts.are_days and low >= DAYS.start and high < DAYS.stop,
    )


def _look(name: str, values: pa.Array, total_rows: int) -> Facts | None:
    rows, known = len(values), values.drop_null()
    total_rows = max(rows, total_rows)
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    elif not pa.types.is_integer(known.type) and not pa.types.is_null(known.type):
        try:
            return _look_at_text(name, known.cast(pa.binary()).cast(pa.string()), rows, total_rows)
        except pa.ArrowInvalid:
            return None
    if not len(known):
        return Facts(name, False, rows, total_rows, 0, 0)
    numbers = known.to_numpy(zero_copy_only=False)
    low, high = float(numbers.min()), float(numbers.max())
    return Facts(
        name,
        False,
        rows,
        total_rows,
        len(known),
        pc.count_distinct(known).as_py(),
        len(known),
        is_integer=pa.types.is_integer(known.type),
        is_whole=bool(np.all(numbers == np.floor(numbers))),
        is_exact=max(-low, high) <= _EXACT.get(known.type, np.inf),
        low=low,
        high=high,
        are_days=_are_days(known, low, high),
        negative=len(np.unique(numbers[numbers < 0])) if low < 0 else 0,
    )


def _usual(numbers: pa.Array) -> int:
    """What nearly all of them are at most."""
    return int(pc.quantile(numbers, _NEARLY_ALL, interpolation="higher")[0].as_py())


def _are_days(known: pa.Array, low: float, high: float) -> bool:
    if not pa.types.is_integer(known.type) or low < DAYS.start or high >= DAYS.stop:
        return False
    return all(map(is_day, known.unique().cast(pa.string()).to_pylist()))


def _look_at_text(name: str, known: pa.StringArray, rows: int, total_rows: int) -> Facts:
    known = known.filter(pc.not_equal(pc.utf8_trim_whitespace(known), ""))
    if not len(known):
        return Facts(name, True, rows, total_rows, 0, 0)
    counts = pa.Table.from_struct_array(pc.value_counts(known))
    spaces = pc.count_substring_regex(known, r"\s+")
    counts = counts.sort_by([("counts", "descending"), ("values", "ascending")])
    return Facts(
        name,
        True,
        rows,
        total_rows,
        len(known),
        len(counts),
        len(known),
        examples=tuple(counts["values"].slice(0, _MOST_EXAMPLES).to_pylist()),
        mean_length=pc.mean(pc.utf8_length(known)).as_py(),
        mean_spaces=pc.mean(spaces).as_py(),
        usual_length=_usual(pc.utf8_length(known)),
        usual_words=_usual(spaces) + 1,
        has_words=pc.mean(pc.match_substring_regex(known, _UNSPACED).cast("int8")).as_py() < 0.5,
    )


_PLACEHOLDERS = {"__BYTES_VALUE__", "__LARGE_BYTES__"}
"""What TFDV counts instead of bytes that are no text, and of long texts: as if all were the same"""


def count_columns(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> dict[str, Counts]:
    """Returns the counts of each column of numbers or text, by name.

    Args:
      statistics: of a split, as StatisticsGen makes them.
    """
    dataset = statistics.datasets[0]
    found = {f.path.step[-1] if f.path.step else f.name: f for f in dataset.features}
    return {name: _count(feature, dataset.num_examples) for name, feature in found.items()}


def _count(feature: statistics_pb2.FeatureNameStatistics, rows: int) -> Counts:
    common = getattr(feature, feature.WhichOneof("stats")).common_stats
    known, longest = common.num_non_missing, common.max_num_values
    if feature.HasField("num_stats"):
        numbers = feature.num_stats
        # The values of lists cannot be told from rows.
        missing = numbers.histograms[0].num_nan if longest == 1 and numbers.histograms else 0
        return Counts(rows, known - int(missing), longest, None, (), numbers.min, numbers.max)
    buckets = feature.string_stats.rank_histogram.buckets
    if any(bucket.label in _PLACEHOLDERS for bucket in buckets):
        return Counts(rows, known, longest)
    blank = [bucket for bucket in buckets if not bucket.label.strip()]
    ranked = sorted(buckets, key=lambda bucket: (-bucket.sample_count, bucket.label))
    if longest == 1:
        known -= int(sum(bucket.sample_count for bucket in blank))
    return Counts(
        rows,
        known,
        longest,
        feature.string_stats.unique - len(blank),
        tuple(bucket.label for bucket in ranked if bucket.label.strip()),
    )
