"""Durations in the notation of a config, such as `5m`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

_MAX = timedelta(days=366)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _parse_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"(\d+)\s*([smhd])", str(value))
    if match is None:
        raise ValueError("a duration is a whole number with a unit, such as 30s, 5m, 4h or 1d")
    count, unit = int(match[1]), _UNITS[match[2]]
    # A larger count would overflow timedelta.
    is_short = count <= _MAX.total_seconds() and timedelta(**{unit: count}) <= _MAX
    if not is_short:
        raise ValueError(f"a duration is at most {show_duration(_MAX)}")
    return timedelta(**{unit: count})


def _check_positive(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("the duration must be at least 1s")
    return value


def show_duration(value: timedelta) -> str:
    """Returns a duration in the notation of a config, such as `5m`."""
    seconds = int(value.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def show_seconds(seconds: float) -> str:
    """Returns a duration in minutes and seconds for messages, such as `3 min 20 s`."""
    rounded = round(seconds)
    return f"{rounded} s" if rounded < 60 else f"{rounded // 60} min {rounded % 60} s"


def _json_schema(pattern: str) -> dict[str, str]:
    words = "Expected a whole number with a unit, such as 30s, 5m, 4h or 1d."
    return {"type": "string", "pattern": f"^{pattern}$", "patternErrorMessage": words}


Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    PlainSerializer(show_duration, when_used="json"),
    WithJsonSchema(_json_schema(r"\d+\s*[smhd]")),
]


SomeTime = Annotated[
    Duration,
    AfterValidator(_check_positive),
    WithJsonSchema(_json_schema(r"0*[1-9]\d*\s*[smhd]")),
]
"""A duration of at least one second."""
