"""The machine's clock, and timestamps in its future, as after the clock was set back."""

from __future__ import annotations

from datetime import datetime, timedelta

TOLERANCE = timedelta(minutes=1)
"""The largest difference between clocks that is ignored."""


def system_clock() -> datetime:
    """Returns the current time with the machine's time zone."""
    return datetime.now().astimezone()


def is_future(moment: datetime, now: datetime) -> bool:
    """Returns whether a moment is more than the tolerance after the current time."""
    return moment > now + TOLERANCE
