"""The machine's clock, and times that it cannot have shown yet, as it was set since."""

from __future__ import annotations

from datetime import datetime, timedelta

TOLERANCE = timedelta(minutes=1)
"""By how much two clocks may differ, or one be set back, without a word about it."""


def system_clock() -> datetime:
    """Now, with the machine's time zone."""
    return datetime.now().astimezone()


def is_future(moment: datetime, now: datetime) -> bool:
    """Returns whether a moment lies in the future of a clock, by more than clocks differ."""
    return moment > now + TOLERANCE
