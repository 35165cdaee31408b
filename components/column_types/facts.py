"""Facts about a column's values. The module does not import TensorFlow.

The numbers of distinct and missing values come from the statistics, which cover every row. The
other facts come from a sample of the data. No fact depends on the order of the rows.
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

_MAX_EXAMPLES = 2_000
"""The maximum number of distinct values of a column that are stored."""
_UNSPACED = r"(?:[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}][^\s]*){4}"
"""The pattern of four consecutive characters of a script without spaces between words."""
_USUAL_QUANTILE = 0.99
"""The quantile of lengths that counts as the usual length."""
_MAX_EXACT = {pa.float32(): 2**24, pa.float64(): 2**53}
"""The largest number up to which a type holds every integer."""


@dataclass(frozen=True)
class Counts:
    """The counts of a column in the statistics of a split, which cover every row."""

    rows: int
    known: int
    """The number of rows with a value."""
    longest: int
    """The largest number of values in a row."""
    distinct: int | None = None
    """The number of distinct strings, or None if the statistics do not contain it."""
    frequent: tuple[str, ...] = ()
    """The strings that the statistics list, the most frequent ones first."""
    low: float = math.nan
    """The smallest number, or NaN for text."""
    high: float = math.nan

    @property
    def is_constant(self) -> bool:
        """Whether every row has a value, and all values are equal."""
        is_same = self.low == self.high if self.distinct is None else self.distinct == 1
        return is_same and 0 < self.rows == self.known


@dataclass(frozen=True)
class Facts:
    """The facts about a column in the train split, or in a sample of it."""

    name: str
    is_text: bool
    rows: int
    """The number of rows in the split, or in the sample if the size of the split is unknown."""
    total_rows: int
    """The number of rows in all splits, or at least the number of rows of the sample."""
    known: int
    """The number of `rows` with a value."""
    distinct: int
    """The number of distinct values in all `known` rows; for numbers, in the sample only."""
    sample_rows: int = 0
    """The number of rows in the sample that have a value."""
    examples: tuple[str, ...] = ()
    """The distinct strings, the most frequent ones first."""
    mean_length: float = 0.0
    mean_spaces: float = 0.0
    usual_length: int = 0
    """The number of characters that 99% of the strings do not exceed."""
    usual_words: int = 0
    """The number of words that 99% of the strings do not exceed."""
    has_words: bool = True
    """Whether most strings are in scripts with spaces between words."""
    is_integer: bool = False
    """Whether the numbers have an integer type."""
    is_whole: bool = False
    """Whether all numbers are integers."""
    is_exact: bool = True
    """Whether the numbers are small enough for their type to hold every integer."""
    low: float = 0.0
    high: float = 0.0
    are_days: bool = False
    """Whether all numbers are days in digits, such as 20260131."""
    negative: int = 0
    """The number of distinct numbers below 0."""
    dates: Dates | None = None
    """The dates of all rows, or None if the column does not hold dates."""
    longest: int = 0
    """The number of values in the longest list, or 0 if rows have one value."""

    @property
    def distinct_share(self) -> float:
        """The number of distinct values, divided by the number of rows with a value."""
        return self.distinct / max(self.known, 1)

    @property
    def has_gaps(self) -> bool:
        """Whether some rows have no value."""
        return self.known < self.rows


def collect_facts(
    columns: Mapping[str, pa.Array],
    dates: Mapping[str, Dates],
    total_rows: int = 0,
    counts: Mapping[str, Counts] | None = None,
) -> list[Facts]:
    """Returns the facts about columns. Columns of bytes that are not text are left out.

    Args:
      columns: the numbers or bytes of each column, [rows]; null where a value is missing.
      total_rows: the number of rows of all data, if `columns` are a part of the data.
      counts: the counts of all rows of the split, if `columns` are a sample of it.
    """
    counts = counts or {}
    all_facts = (_sample_facts(name, values, total_rows) for name, values in columns.items())
    return [
        replace(_in_all_rows(facts, counts.get(facts.name)), dates=dates.get(facts.name))
        for facts in all_facts
        if facts is not None
    ]


def collect_list_facts(
    columns: Mapping[str, tuple[np.ndarray, pa.Array]],
    counts: Mapping[str, Counts] | None = None,
) -> list[Facts]:
    """Returns the facts about columns of lists. The facts count values instead of rows.

    Args:
      columns: the number of values of each row, and all values, by column.
    """
    all_facts = []
    for name, (lengths, values) in columns.items():
        facts, column_counts = _sample_facts(name, values, 0), (counts or {}).get(name)
        if facts is not None:
            longest = max(
                int(lengths.max(initial=0)), column_counts.longest if column_counts else 0
            )
            distinct = max(facts.distinct, (column_counts.distinct or 0) if column_counts else 0)
            all_facts.append(replace(facts, longest=longest, distinct=distinct))
    return all_facts


def _in_all_rows(facts: Facts, counts: Counts | None) -> Facts:
    """Returns the facts, with the counts of the statistics instead of the sample's counts."""
    if counts is None:
        return facts
    if facts.is_text:
        if counts.distinct is None:
            return facts
        frequent = set(counts.frequent)
        rare = [value for value in facts.examples if value not in frequent]
        lists_all = len(counts.frequent) >= counts.distinct
        return replace(
            facts,
            rows=counts.rows,
            known=counts.known,
            distinct=counts.distinct,
            examples=(*counts.frequent, *([] if lists_all else rare))[:_MAX_EXAMPLES],
        )
    low, high = counts.low, counts.high
    is_exact = facts.is_integer or max(-low, high) <= _MAX_EXACT[pa.float32()]
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


def _sample_facts(name: str, values: pa.Array, total_rows: int) -> Facts | None:
    rows, known = len(values), values.drop_null()
    total_rows = max(rows, total_rows)
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    elif not pa.types.is_integer(known.type) and not pa.types.is_null(known.type):
        try:
            return _text_facts(name, known.cast(pa.binary()).cast(pa.string()), rows, total_rows)
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
        is_exact=max(-low, high) <= _MAX_EXACT.get(known.type, np.inf),
        low=low,
        high=high,
        are_days=_are_days(known, low, high),
        negative=len(np.unique(numbers[numbers < 0])) if low < 0 else 0,
    )


def _usual_value(numbers: pa.Array) -> int:
    """Returns the number that 99% of the numbers do not exceed."""
    return int(pc.quantile(numbers, _USUAL_QUANTILE, interpolation="higher")[0].as_py())


def _are_days(known: pa.Array, low: float, high: float) -> bool:
    if not pa.types.is_integer(known.type) or low < DAYS.start or high >= DAYS.stop:
        return False
    return all(map(is_day, known.unique().cast(pa.string()).to_pylist()))


def _text_facts(name: str, known: pa.StringArray, rows: int, total_rows: int) -> Facts:
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
        examples=tuple(counts["values"].slice(0, _MAX_EXAMPLES).to_pylist()),
        mean_length=pc.mean(pc.utf8_length(known)).as_py(),
        mean_spaces=pc.mean(spaces).as_py(),
        usual_length=_usual_value(pc.utf8_length(known)),
        usual_words=_usual_value(spaces) + 1,
        has_words=pc.mean(pc.match_substring_regex(known, _UNSPACED).cast("int8")).as_py() < 0.5,
    )


_PLACEHOLDERS = {"__BYTES_VALUE__", "__LARGE_BYTES__"}
"""The labels under which TFDV counts long strings, and bytes that are not text."""


def count_columns(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> dict[str, Counts]:
    """Returns the counts of each column of numbers or text, by name."""
    dataset = statistics.datasets[0]
    features = {f.path.step[-1] if f.path.step else f.name: f for f in dataset.features}
    return {name: _count(feature, dataset.num_examples) for name, feature in features.items()}


def _count(feature: statistics_pb2.FeatureNameStatistics, rows: int) -> Counts:
    common = getattr(feature, feature.WhichOneof("stats")).common_stats
    known, longest = common.num_non_missing, common.max_num_values
    if feature.HasField("num_stats"):
        numbers = feature.num_stats
        # In columns of lists, NaN values are not missing rows.
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
