"""The firings of cron expressions, with daylight saving time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cronsim import CronSim

from pipeline.config.sections.schedule import ScheduleSettings

MAX_AGE = timedelta(days=366)
"""The maximum age of a missed firing; older firings are ignored."""


def firings_between(settings: ScheduleSettings, after: datetime, until: datetime) -> list[datetime]:
    """Returns the firings after `after`, up to `until`, in the schedule's time zone.

    When clocks go forward, a firing in the skipped hour comes right after that hour. When clocks go
    back, a firing in the repeated hour comes once.
    """
    firings = []
    for firing in _firings(settings, max(after, until - MAX_AGE)):
        if _is_later(firing, until):
            break
        firings.append(firing)
    return firings


def next_firings(settings: ScheduleSettings, after: datetime, count: int) -> list[datetime]:
    """Returns the next firings in the schedule's time zone, or [] without a cron expression."""
    firings = _firings(settings, after)
    return [firing for _, firing in zip(range(count), firings, strict=False)]


def explain(settings: ScheduleSettings) -> str:
    """Returns a description of the cron expression, or an empty string without an expression."""
    if settings.cron is None:
        return ""
    return str(CronSim(settings.cron, datetime(2026, 1, 1)).explain())


def show_time(moment: datetime, settings: ScheduleSettings) -> str:
    """Returns a time in the schedule's time zone, such as `2026-01-05 03:00 CET`."""
    return moment.astimezone(settings.zone).strftime("%Y-%m-%d %H:%M %Z")


def _firings(settings: ScheduleSettings, after: datetime) -> Iterator[datetime]:
    if settings.cron is None:
        return
    for firing in CronSim(settings.cron, after.astimezone(settings.zone)):
        # CronSim ignores `fold`: in the second of two equal hours, it repeats the firings of
        # the first.
        if _is_later(firing, after):
            yield firing


def _is_later(first: datetime, second: datetime) -> bool:
    """Returns whether a time is later, in UTC: datetimes of one time zone compare by local time."""
    return first.astimezone(UTC) > second.astimezone(UTC)
