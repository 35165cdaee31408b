"""The descriptions of anomalies: the expectation of the schema, and the contents of the data."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from components.example_validator.distribution_changes import common_of
from components.example_validator.odd_rows import (
    Rows,
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
    show_value,
)
from trainer_module.errors import counted

_Type = anomalies_pb2.AnomalyInfo
_Statistics: TypeAlias = statistics_pb2.FeatureNameStatistics

SHOWN_VALUES = 5
"""The maximum number of values in a message."""

_TYPE_ANOMALY = re.compile(
    r"UNEXPECTED_DATA_TYPE|BOOL_TYPE_UNEXPECTED_STRING"
    r"|[A-Z]+_TYPE_\w*(NOT_(INT|STRING|FLOAT)\w*|NON_STRING|_EXPECTED|NOW_(INT|FLOAT))"
)
WRONG_TYPE = {kind for name, kind in _Type.Type.items() if _TYPE_ANOMALY.fullmatch(name)}
"""The kinds of anomaly of values whose type is not the type in the schema."""

BEYOND_BOUNDS = {
    _Type.FLOAT_TYPE_BIG_FLOAT,
    _Type.FLOAT_TYPE_SMALL_FLOAT,
    _Type.INT_TYPE_BIG_INT,
    _Type.INT_TYPE_SMALL_INT,
}
NOT_FINITE = {_Type.FLOAT_TYPE_HAS_NAN, _Type.FLOAT_TYPE_HAS_INF}

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
    """A column that contradicts the schema."""

    feature: schema_pb2.Feature
    """The column in the schema."""
    values: tuple[str, ...]
    """The list of values in the schema, or an empty tuple for a column without a list."""
    statistics: tuple[_Statistics, ...]
    """The statistics of the column in each split that contradicts the schema."""
    examples: int
    """The number of examples in the splits that contradict the schema."""

    @property
    def common(self) -> list[statistics_pb2.CommonStatistics]:
        """The counts that columns of all types have, in each of `statistics`."""
        return list(map(common_of, self.statistics))


@dataclass(frozen=True)
class Finding:
    """A difference between a column and the schema."""

    expected: str
    """The expectation of the schema, or an empty string if `found` describes the difference."""
    found: str
    """The contradicting contents of the data."""
    is_anomalous: Test | None = None
    """The test for anomalous rows, or None if single rows are not anomalous."""
    counted: Rows | None = None
    """The number of anomalous rows in the statistics, or None if the statistics do not have it."""

    def sentence(self, rows: Rows | None) -> str:
        """Returns the finding as a sentence with the anomalous rows, if they are known."""
        if not self.expected:
            return self.found
        in_rows = rows or self.counted
        return f"expected {self.expected}; found {self.found}" + (f" {in_rows}" if in_rows else "")

    @classmethod
    def from_tfdv(cls, description: str) -> Finding:
        """Returns a finding with TFDV's description, for anomalies without a description here."""
        return cls("", " ".join(description.split()).rstrip("."))


def _type(column: CheckedColumn) -> Finding:
    types = {FOUND_TYPES.get(s.type, "values of another type") for s in column.statistics}
    tests = {schema_pb2.INT: not_whole, schema_pb2.FLOAT: not_a_number}
    return Finding(
        EXPECTED_TYPES.get(column.feature.type, "values of another type"),
        " and ".join(sorted(types)),
        tests.get(column.feature.type),
    )


def _missing(column: CheckedColumn) -> Finding:
    min_share = column.feature.presence.min_fraction
    share = "every row" if min_share in (0, 1) else f"at least {min_share:.1%} of the rows"
    absent = sum(common.num_missing for common in column.common)
    counted = Rows(absent, column.examples) if absent else None
    return Finding(f"a value in {share}", "none", missing, counted)


def _shape(column: CheckedColumn) -> Finding:
    size = math.prod(dim.size for dim in column.feature.shape.dim)
    if size == 1 and any(common.num_missing for common in column.common):
        return _missing(column)
    min_size = min(0 if c.num_missing else c.min_num_values for c in column.common)
    max_size = max(common.max_num_values for common in column.common)
    values = "one value" if size == 1 else f"{size} values"
    return Finding(f"{values} in each row", f"{min_size} to {max_size}", other_than(size))


def _too_many(column: CheckedColumn) -> Finding:
    expected = max(column.feature.value_count.max, 1)
    found = max((common.max_num_values for common in column.common), default=0)
    values = "one value" if expected == 1 else f"at most {expected} values"
    return Finding(f"{values} in a row", f"up to {found}", more_than(expected))


def _unknown_values(column: CheckedColumn) -> Finding:
    expected = column.values
    buckets = [
        bucket
        for statistics in column.statistics
        for bucket in statistics.string_stats.rank_histogram.buckets
        if bucket.label not in expected
    ]
    new = list(dict.fromkeys(bucket.label for bucket in buckets))
    return Finding(
        f"one of {_listed(expected)}" if expected else "other values",
        _listed(new) if new else "others",
        not_one_of(expected),
        Rows(round(sum(bucket.sample_count for bucket in buckets)), column.examples)
        if buckets
        else None,
    )


def _out_of_range(column: CheckedColumn) -> Finding:
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
    outliers = ((smallest, smallest < low), (largest, largest > high))
    found = [value for value, is_outside in outliers if is_outside]
    return Finding(
        f"{EXPECTED_TYPES.get(feature.type, 'numbers')} {_range(low, high)}".rstrip(),
        " and ".join(f"{value:.7g}" for value in found) or "others",
        outside(low, high),
    )


_FINDINGS: tuple[tuple[Callable[[CheckedColumn], Finding], set[int]], ...] = (
    (lambda _: Finding("the column", "none in the data"), {_Type.SCHEMA_MISSING_COLUMN}),
    (
        lambda _: Finding(
            "no column of this name", "one in the data, which the model does not read"
        ),
        {_Type.SCHEMA_NEW_COLUMN},
    ),
    (
        lambda column: Finding("values", f"none in any of {counted(column.examples, 'row')}"),
        {_Type.FEATURE_TYPE_NOT_PRESENT, _Type.FEATURE_TYPE_NO_VALUES},
    ),
    (_type, WRONG_TYPE),
    (_shape, {_Type.INVALID_FEATURE_SHAPE}),
    (
        _missing,
        {
            _Type.FEATURE_TYPE_LOW_FRACTION_PRESENT,
            _Type.FEATURE_TYPE_LOW_NUMBER_PRESENT,
            _Type.FEATURE_TYPE_LOW_NUMBER_VALUES,
        },
    ),
    (
        _too_many,
        {_Type.FEATURE_TYPE_HIGH_NUMBER_VALUES, _Type.FEATURE_TYPE_UNEXPECTED_REPEATED},
    ),
    (_unknown_values, {_Type.ENUM_TYPE_UNEXPECTED_STRING_VALUES}),
    (
        _out_of_range,
        {
            *BEYOND_BOUNDS,
            _Type.BOOL_TYPE_BIG_INT,
            _Type.BOOL_TYPE_SMALL_INT,
            _Type.BOOL_TYPE_UNEXPECTED_FLOAT,
        },
    ),
    (lambda _: Finding("finite numbers", "infinite numbers or NaN", not_finite), NOT_FINITE),
    (lambda _: Finding("text in UTF-8", "other bytes", not_utf8), {_Type.ENUM_TYPE_INVALID_UTF8}),
)
"""The functions that return the finding for some kinds of TFDV's anomalies. The most informative
findings come first."""


def findings(
    column: CheckedColumn, reasons: Sequence[anomalies_pb2.AnomalyInfo.Reason]
) -> list[Finding]:
    """Returns the findings for TFDV's reasons. Findings with the same expectation are left out."""
    kinds = {reason.type for reason in reasons}
    all_findings = [find(column) for find, handled in _FINDINGS if kinds & handled]
    other_kinds = kinds.difference(*(handled for _, handled in _FINDINGS))
    all_findings += [Finding.from_tfdv(r.description) for r in reasons if r.type in other_kinds]
    distinct: dict[str, Finding] = {}
    for finding in all_findings:
        distinct.setdefault(finding.expected or finding.found, finding)
    return list(distinct.values())


def _range(low: float, high: float) -> str:
    if np.isinf(low):
        return "" if np.isinf(high) else f"up to {high:.7g}"
    return f"from {low:.7g}" + ("" if np.isinf(high) else f" to {high:.7g}")


def _listed(values: Sequence[str]) -> str:
    more = len(values) - SHOWN_VALUES
    shown = ", ".join(show_value(value) for value in values[:SHOWN_VALUES])
    return shown + (f" and {more} more" if more > 0 else "")
