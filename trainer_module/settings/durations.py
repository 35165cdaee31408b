"""Durations in the notation of a config, such as `5m`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

_LONGEST = timedelta(days=366)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _parse_duration(value: Any) -> timedelta:
    found = re.fullmatch(r"(\d+)\s*([smhd])", str(value))
    if isinstance(value, timedelta):
        return value
    if found is None:
        raise ValueError("a duration is a whole number with a unit, such as 30s, 5m, 4h or 1d")
    if int(found[1]) > _LONGEST.total_seconds():
        raise ValueError(f"a duration is at most {show_duration(_LONGEST)}")
    duration = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if duration > _LONGEST:
        raise ValueError(f"a duration is at most {show_duration(_LONGEST)}")
    return duration


def _is_some(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("it has to be at least 1s")
    return value


def show_duration(value: timedelta) -> str:
    """Returns a duration in the notation of a config, such as `5m`."""
    seconds = int(value.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def show_seconds(seconds: float) -> str:
    """Returns a duration in words for people, such as `3 min 20 s`."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    PlainSerializer(show_duration, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+\s*[smhd]$"}),
]


SomeTime = Annotated[Duration, AfterValidator(_is_some)]
"""A duration that is not zero."""
