"""Which placeholders of a path belong together, said in words."""

from __future__ import annotations

import pytest

from components.example_gen.paths import is_hourly, is_span_pattern, pattern_fault


@pytest.mark.parametrize(
    "pattern",
    [
        "*.csv",
        "{SPAN:3}/v{VERSION}/*.csv",
        "{YYYY}-{MM}-{DD}/*.csv",
        "{YYYY}/{MM}/{DD}/{HH}/v{VERSION:2}.csv",
        "{YYYY}-{MM}-{DD}/{HH}-*.parquet",
        "{6f1c}.csv",
    ],
)
def test_patterns_that_are_whole(pattern):
    assert pattern_fault(pattern) is None
    assert is_span_pattern(pattern) == ("{SPAN" in pattern or "{YYYY}" in pattern)
    assert is_hourly(pattern) == ("{HH}" in pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{HH}/*.csv", "found {HH} without {YYYY}, {MM} and {DD}; right is {YYYY}-{MM}-{DD}/{HH}"),
        ("{YYYY}/{MM}/*.csv", "found {YYYY} without {DD}; right is {YYYY}-{MM}-{DD}, or such"),
        ("{YYYY}{MM}{DD}/{YYYY}.csv", "{YYYY} stands there twice"),
        ("{SPAN}/{HH}.csv", "found {SPAN} beside {HH}; spans are numbers or dates, never both"),
        ("v{VERSION}/*.csv", "found {VERSION} without a span; add {SPAN} or {YYYY}-{MM}-{DD}"),
        ("{YYYY}-{MM}-{DD}/{hh}/*.csv", "found {hh}; did you mean {HH}?"),
        ("{YYYYMMDD}/*.csv", "found {YYYYMMDD}; did you mean {YYYY}?"),
        ("{span:2}/*.csv", "found {span:2}; did you mean {SPAN}?"),
    ],
)
def test_patterns_that_are_not(pattern, words):
    assert words in (pattern_fault(pattern) or "")
