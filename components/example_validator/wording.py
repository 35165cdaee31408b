"""What a schema expects of a column and what was found instead, in words without TFDV's terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from components.example_validator.odd_values import (
    Test,
    missing,
    more_than,
    not_a_number,
    not_finite,
    not_one_of,
    not_utf8,
    not_whole,
    other_than,
    outside,
)
from components.example_validator.rows import Rows, show_value
from trainer_module.errors import counted

_Type = anomalies_pb2.AnomalyInfo
_Statistics: TypeAlias = statistics_pb2.FeatureNameStatistics

SHOWN_VALUES = 5
"""Of a list in a message."""

WRONG_TYPE = (
    _Type.UNEXPECTED_DATA_TYPE,
    _Type.BOOL_TYPE_BYTES_NOT_INT,
    _Type.BOOL_TYPE_BYTES_NOT_STRING,
    _Type.BOOL_TYPE_FLOAT_NOT_INT,
    _Type.BOOL_TYPE_FLOAT_NOT_STRING,
    _Type.BOOL_TYPE_INT_NOT_STRING,
    _Type.BOOL_TYPE_STRING_NOT_INT,
    _Type.BOOL_TYPE_UNEXPECTED_STRING,
    _Type.ENUM_TYPE_BYTES_NOT_STRING,
    _Type.ENUM_TYPE_FLOAT_NOT_STRING,
    _Type.ENUM_TYPE_INT_NOT_STRING,
    _Type.FLOAT_TYPE_NOT_FLOAT,
    _Type.FLOAT_TYPE_STRING_NOT_FLOAT,
    _Type.FLOAT_TYPE_NON_STRING,
    _Type.INT_TYPE_INT_EXPECTED,
    _Type.INT_TYPE_NOT_INT_STRING,
    _Type.INT_TYPE_NOT_STRING,
    _Type.INT_TYPE_STRING_EXPECTED,
    _Type.STRING_TYPE_NOW_FLOAT,
    _Type.STRING_TYPE_NOW_INT,
)
"""Values of another type than the schema says."""

EXPECTED_TYPES = {
    schema_pb2.INT: "whole numbers",
    schema_pb2.FLOAT: "numbers",
    schema_pb2.BYTES: "text",
}
FOUND_TYPES = {
    _Statistics.INT: "whole numbers",
    _Statistics.FLOAT: "floating-point numbers",
    _Statistics.STRING: "text",
    _Statistics.BYTES: "text",
}


@dataclass(frozen=True)
class CheckedColumn:
    """A column as the schema has it, and as the splits have it that do not keep that."""

    feature: schema_pb2.Feature
    values: tuple[str, ...]
    """Those that the schema knows, of text with a domain."""
    statistics: tuple[_Statistics, ...]
    examples: int
    """Of the splits together."""

    @property
    def common(self) -> list[statistics_pb2.CommonStatistics]:
        """What is counted of columns of all types, by split."""
        return [getattr(s, s.WhichOneof("stats")).common_stats for s in self.statistics]


@dataclass(frozen=True)
class Finding:
    """One way in which a column is not what was expected."""

    expected: str
    """Empty where `found` says all."""
    found: str
    is_odd: Test | None = None
    """Which rows are so, where that can be said of each."""
    counted: Rows | None = None
    """What the statistics say of that."""

    def sentence(self, rows: Rows | None) -> str:
        """The finding, with the rows where it is."""
        if not self.expected:
            return self.found
        place = rows or self.counted
        return f"expected {self.expected}; found {self.found}" + (f" {place}" if place else "")

    @classmethod
    def in_tfdvs_words(cls, description: str) -> Finding:
        """What is rare enough to be told as TFDV has it."""
        return cls("", " ".join(description.split()).rstrip("."))


def findings(
    column: CheckedColumn, reasons: Sequence[anomalies_pb2.AnomalyInfo.Reason]
) -> list[Finding]:
    """What is told of the reasons that TFDV gives; those that come to the same once."""
    told: dict[str, Finding] = {}
    for reason in sorted(reasons, key=lambda reason: _ORDER.index(_word(reason.type))):
        finding = _word(reason.type)(column)
        if finding is None:
            finding = Finding.in_tfdvs_words(reason.description)
        told.setdefault(finding.expected or finding.found, finding)
    return list(told.values())


def _gone(column: CheckedColumn) -> Finding:
    return Finding("such a column", "none in the data")


def _new(column: CheckedColumn) -> Finding:
    return Finding("no such column", "one in the data, which the model does not see")


def _type(column: CheckedColumn) -> Finding:
    found = {FOUND_TYPES.get(s.type, "values of another type") for s in column.statistics}
    tests = {schema_pb2.INT: not_whole, schema_pb2.FLOAT: not_a_number}
    return Finding(
        EXPECTED_TYPES.get(column.feature.type, "values of another type"),
        " and ".join(sorted(found)),
        tests.get(column.feature.type),
    )


def _missing(column: CheckedColumn) -> Finding:
    least = column.feature.presence.min_fraction
    share = "every row" if least in (0, 1) else f"at least {least:.1%} of the rows"
    absent = sum(common.num_missing for common in column.common)
    counted = Rows(absent, column.examples) if absent else None
    return Finding(f"a value in {share}", "none", missing, counted)


def _shape(column: CheckedColumn) -> Finding:
    size = math.prod(dim.size for dim in column.feature.shape.dim)
    if size == 1 and any(common.num_missing for common in column.common):
        return _missing(column)
    fewest = min(0 if c.num_missing else c.min_num_values for c in column.common)
    most = max(common.max_num_values for common in column.common)
    values = "one value" if size == 1 else f"{size} values"
    return Finding(f"{values} in each row", f"{fewest} to {most}", other_than(size))


def _empty(column: CheckedColumn) -> Finding:
    return Finding("values", f"none in any of {counted(column.examples, 'row')}")


def _too_many(column: CheckedColumn) -> Finding:
    most = max(column.feature.value_count.max, 1)
    found = max((common.max_num_values for common in column.common), default=0)
    values = "one value" if most == 1 else f"at most {most} values"
    return Finding(f"{values} in a row", f"up to {found}", more_than(most))


def _unknown_values(column: CheckedColumn) -> Finding:
    known = column.values
    buckets = [
        bucket
        for statistics in column.statistics
        for bucket in statistics.string_stats.rank_histogram.buckets
        if bucket.label not in known
    ]
    new = list(dict.fromkeys(bucket.label for bucket in buckets))
    return Finding(
        f"one of {_listed(known)}" if known else "other values",
        _listed(new) if new else "others",
        not_one_of(known),
        Rows(round(sum(bucket.sample_count for bucket in buckets)), column.examples)
        if buckets
        else None,
    )


def _beyond(column: CheckedColumn) -> Finding:
    feature = column.feature
    kind = feature.WhichOneof("domain_info")
    if kind == "bool_domain":
        low, high = 0.0, 1.0
    else:
        domain = getattr(feature, kind) if kind in ("int_domain", "float_domain") else None
        low = domain.min if domain is not None and domain.HasField("min") else -np.inf
        high = domain.max if domain is not None and domain.HasField("max") else np.inf
    smallest = min(s.num_stats.min for s in column.statistics)
    largest = max(s.num_stats.max for s in column.statistics)
    found = [value for value, odd in ((smallest, smallest < low), (largest, largest > high)) if odd]
    return Finding(
        f"{EXPECTED_TYPES.get(feature.type, 'numbers')} {_range(low, high)}".rstrip(),
        " and ".join(f"{value:.7g}" for value in found) or "others",
        outside(low, high),
    )


def _not_finite(column: CheckedColumn) -> Finding:
    return Finding("finite numbers", "infinite ones or NaN", not_finite)


def _not_utf8(column: CheckedColumn) -> Finding:
    return Finding("text in UTF-8", "other bytes", not_utf8)


def _unique(column: CheckedColumn) -> Finding:
    bounds = column.feature.unique_constraints
    found = max(s.string_stats.unique for s in column.statistics)
    return Finding(f"{bounds.min} to {bounds.max} different values", f"{found}")


def _in_tfdvs_words(column: CheckedColumn) -> None:
    return None


_Word = Callable[[CheckedColumn], Finding | None]
_WORDS: dict[_Word, tuple[int, ...]] = {
    _gone: (_Type.SCHEMA_MISSING_COLUMN,),
    _new: (_Type.SCHEMA_NEW_COLUMN,),
    _empty: (_Type.FEATURE_TYPE_NOT_PRESENT, _Type.FEATURE_TYPE_NO_VALUES),
    _type: WRONG_TYPE,
    _shape: (_Type.INVALID_FEATURE_SHAPE,),
    _missing: (
        _Type.FEATURE_TYPE_LOW_FRACTION_PRESENT,
        _Type.FEATURE_TYPE_LOW_NUMBER_PRESENT,
        _Type.FEATURE_TYPE_LOW_NUMBER_VALUES,
    ),
    _too_many: (_Type.FEATURE_TYPE_HIGH_NUMBER_VALUES, _Type.FEATURE_TYPE_UNEXPECTED_REPEATED),
    _unknown_values: (_Type.ENUM_TYPE_UNEXPECTED_STRING_VALUES,),
    _beyond: (
        _Type.BOOL_TYPE_BIG_INT,
        _Type.BOOL_TYPE_SMALL_INT,
        _Type.BOOL_TYPE_UNEXPECTED_FLOAT,
        _Type.INT_TYPE_BIG_INT,
        _Type.INT_TYPE_SMALL_INT,
        _Type.FLOAT_TYPE_BIG_FLOAT,
        _Type.FLOAT_TYPE_SMALL_FLOAT,
    ),
    _not_finite: (_Type.FLOAT_TYPE_HAS_NAN, _Type.FLOAT_TYPE_HAS_INF),
    _not_utf8: (_Type.ENUM_TYPE_INVALID_UTF8,),
    _unique: (
        _Type.FEATURE_TYPE_HIGH_UNIQUE,
        _Type.FEATURE_TYPE_LOW_UNIQUE,
        _Type.FEATURE_TYPE_NO_UNIQUE,
    ),
    _in_tfdvs_words: (),
}
_ORDER = list(_WORDS)


def _word(kind: int) -> _Word:
    return next((word for word, kinds in _WORDS.items() if kind in kinds), _in_tfdvs_words)


def _range(low: float, high: float) -> str:
    if np.isinf(low):
        return "" if np.isinf(high) else f"up to {high:.7g}"
    return f"from {low:.7g}" + ("" if np.isinf(high) else f" to {high:.7g}")


def _listed(values: Sequence[str]) -> str:
    more = len(values) - SHOWN_VALUES
    shown = ", ".join(show_value(value) for value in values[:SHOWN_VALUES])
    return shown + (f" and {more} more" if more > 0 else "")
