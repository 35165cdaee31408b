"""How a config's data path names spans, and how spans are numbered.

Spans are numbers: those of {SPAN}, days since 1970 of a date, or hours since 1970 of an hour.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from enum import Enum

from components.example_gen.spans.placeholders import (
    HOURS_A_DAY,
    is_dated,
    is_hourly,
    is_span_pattern,
)
from pipeline.config.settings import DataSettings

NO_SPAN = -1
"""The number of data that does not come in spans."""

_EPOCH = datetime(1970, 1, 1)
_HOUR_FORMAT = "%Y-%m-%dT%H"


class SpanKind(Enum):
    """What a span of some data is; its value says it in messages."""

    NUMBER = "a number"
    DAY = "a date, such as 2026-01-05"
    HOUR = "an hour, such as 2026-01-05T08"

    @property
    def is_dated(self) -> bool:
        """Whether it is a day, or an hour of one."""
        return self is not SpanKind.NUMBER

    def show(self, number: int) -> str:
        """A span's number as people know it."""
        if self is SpanKind.HOUR:
            return (_EPOCH + timedelta(hours=number)).strftime(_HOUR_FORMAT)
        if self is SpanKind.DAY:
            return (_EPOCH + timedelta(days=number)).date().isoformat()
        return str(number)

    def parse(self, text: str) -> int:
        """The number of a span that is shown like that; ValueError for anything else."""
        if self is SpanKind.HOUR:
            return (datetime.strptime(text, _HOUR_FORMAT) - _EPOCH) // timedelta(hours=1)
        return self.first(date.fromisoformat(text)) if self is SpanKind.DAY else int(text)

    def first(self, day: date) -> int:
        """The number of the first span of a day; of spans that have dates alone."""
        days = (day - _EPOCH.date()).days
        return days * HOURS_A_DAY if self is SpanKind.HOUR else days


def has_spans(data: DataSettings) -> bool:
    """Whether the data comes in spans."""
    return any(map(is_span_pattern, span_patterns(data)))


def span_kind(data: DataSettings) -> SpanKind:
    """What a span of the data is; a number where it does not come in spans."""
    patterns = span_patterns(data)
    if any(map(is_hourly, patterns)):
        return SpanKind.HOUR
    return SpanKind.DAY if any(map(is_dated, patterns)) else SpanKind.NUMBER


def span_patterns(data: DataSettings) -> list[str]:
    """The patterns that may name spans: the path, and a glob per split."""
    return [data.path, *(split for split in data.splits.values() if isinstance(split, str))]
