"""The machine's clock, and the detection of timestamps in the future, after a clock was set
back.
"""

from __future__ import annotations

from datetime import datetime, timedelta

TOLERANCE = timedelta(minutes=1)
"""The difference between clocks, or the step back of one, that is ignored."""


def system_clock() -> datetime:
    """Returns the current time with the machine's time zone."""
    return datetime.now().astimezone()


def is_future(moment: datetime, now: datetime) -> bool:
    """Returns whether a moment is ahead of the clock by more than the tolerance."""
    return moment > now + TOLERANCE
