"""When a cron expression fires, daylight saving included."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cronsim import CronSim

from pipeline.config.schedule import ScheduleSettings

LONGEST_GAP = timedelta(days=366)
"""A scheduler that was down for longer does not count the firings before."""


def firings_between(settings: ScheduleSettings, after: datetime, until: datetime) -> list[datetime]:
    """The firings later than `after` and not later than `until`, in the schedule's time zone.

    A firing in an hour that daylight saving leaves out comes right after that hour; one in the
    hour that comes twice comes once.
    """
    found = []
    for firing in _firings(settings, max(after, until - LONGEST_GAP)):
        if _is_later(firing, until):
            break
        found.append(firing)
    return found


def next_firings(settings: ScheduleSettings, after: datetime, count: int) -> list[datetime]:
    """The next firings, in the schedule's time zone; none without a cron expression."""
    firings = _firings(settings, after)
    return [firing for _, firing in zip(range(count), firings, strict=False)]


def explain(settings: ScheduleSettings) -> str:
    """The cron expression in words; empty without one."""
    if settings.cron is None:
        return ""
    return str(CronSim(settings.cron, datetime(2026, 1, 1)).explain())


def show_time(moment: datetime, settings: ScheduleSettings) -> str:
    """A moment as the schedule's time zone has it: `2026-01-05 03:00 CET`."""
    return moment.astimezone(settings.zone).strftime("%Y-%m-%d %H:%M %Z")


def _firings(settings: ScheduleSettings, after: datetime) -> Iterator[datetime]:
    if settings.cron is None:
        return
    for firing in CronSim(settings.cron, after.astimezone(settings.zone)):
        # In the second of two like hours it would begin with the first one's firings.
        if _is_later(firing, after):
            yield firing


def _is_later(first: datetime, second: datetime) -> bool:
    """Compares moments: datetimes of one time zone compare what its clocks show."""
    return first.astimezone(UTC) > second.astimezone(UTC)
