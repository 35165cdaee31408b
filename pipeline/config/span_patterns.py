"""How a config's data path names spans, and how spans are numbered.

Spans are numbers: those of {SPAN}, or days since 1970 of a date.
"""

from __future__ import annotations

from datetime import date, timedelta

from components.example_gen.paths import is_span_pattern
from pipeline.config.settings import DataSettings

EPOCH = date(1970, 1, 1)
"""Day 0, as TFX counts."""

NO_SPAN = -1
"""The number of data that does not come in spans."""


def has_spans(data: DataSettings) -> bool:
    """Whether the data comes in spans."""
    return any(map(is_span_pattern, [data.path, *(str(split) for split in data.splits.values())]))


def show_span(number: int, has_date: bool) -> str:
    """A span's number as people know it."""
    return (EPOCH + timedelta(days=number)).isoformat() if has_date else str(number)


def parse_span(text: str, has_date: bool) -> int:
    """The number of a span, from its date or number; ValueError for anything else."""
    return (date.fromisoformat(text) - EPOCH).days if has_date else int(text)


def span_kind(data: DataSettings) -> str:
    """What a span of the data is called by, for messages."""
    return "a date, such as 2026-01-05" if is_dated(data) else "a number"


def is_dated(data: DataSettings) -> bool:
    """Whether the data path's spans are dates."""
    return "{YYYY}" in " ".join([data.path, *(str(split) for split in data.splits.values())])
