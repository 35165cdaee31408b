"""The alarm that nothing has been pushed for too long, whatever the reason."""

from __future__ import annotations

from datetime import datetime, timedelta

from pipeline.clock import is_future
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import notify
from pipeline.schedule.cron import show_time
from trainer_module.settings.durations import show_duration

_REASONS = (
    EventKind.FAILED,
    EventKind.FINISHED,
    EventKind.SKIPPED,
    EventKind.UNUSABLE_SPAN,
    EventKind.LEFT_OUT,
)
"""Events that may say why nothing is pushed."""
_HOURS_SHOWN = 48
"""From so many on an age is said in days."""


def check_staleness(
    config: PipelineConfig, event_log: EventLog, now: datetime, last: datetime | None
) -> bool:
    """Raises the alarm if nothing has been pushed for `notify.stale_after`, or says it is over.

    It comes once, again after each further such time, and is over with the next push.

    Args:
      config: a checked config.
      event_log: of the pipeline; it remembers the alarm.
      now: what the clock shows.
      last: when a model was pushed last, as `last_push` says.

    Returns:
      Whether the pipeline is stale.
    """
    limit, alarm = config.notify.stale_after, event_log.last(EventKind.STALE)
    if limit is None:
        return False
    pushed = event_log.last(EventKind.PUSHED)
    is_raised = alarm is not None and not alarm.details["over"]
    if is_raised and alarm and pushed and pushed.id > alarm.id:
        _tell(config, event_log, now, f"over: a model was pushed again, {pushed.message}", True)
        is_raised = False
    since = last or _first_event(event_log, now)
    if now - since < limit:
        return False
    if is_raised and alarm and timedelta() <= now - alarm.at < limit:
        return True
    what = "nothing has been pushed since" if pushed else "nothing has ever been pushed since"
    message = (
        f"{what} {show_time(since, config.schedule_or_default)}, for {_roughly(now - since)} "
        f"(notify.stale_after: {show_duration(limit)})"
    )
    word = event_log.last(*_REASONS)
    _tell(config, event_log, now, message + (f"; the last word: {_word(word)}" if word else ""))
    return True


def last_push(event_log: EventLog, now: datetime) -> datetime | None:
    """When a model was pushed last; None if none ever was.

    A push that is dated in the future of the clock was made before the next event that is not.
    """
    pushed = event_log.last(EventKind.PUSHED)
    if pushed is None or not is_future(pushed.at, now):
        return pushed.at if pushed else None
    later = (e.at for e in event_log.events(EventKind.DUE, EventKind.SKIPPED) if e.id > pushed.id)
    return next((moment for moment in later if not is_future(moment, now)), now)


def _first_event(event_log: EventLog, now: datetime) -> datetime:
    """Since when the pipeline has been looked after."""
    first = event_log.first()
    return now if first is None else min(now, first.at)


def _tell(
    config: PipelineConfig, event_log: EventLog, now: datetime, message: str, over: bool = False
) -> None:
    event_log.record(EventKind.STALE, message, at=now, over=over)
    notify(config.notify, config.name, Occasion.STALE, message, {"over": over}, event_log)


def _word(event: LoggedEvent) -> str:
    what = event.details.get("status", event.kind.value)
    return f"{str(what).replace('_', ' ')}: {event.message}"


def _roughly(age: timedelta) -> str:
    """Such as `37 h`, or `3 days`."""
    hours = int(age.total_seconds() // 3600)
    return f"{hours} h" if hours < _HOURS_SHOWN else f"{age.days} days"
