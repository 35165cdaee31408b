"""Signs of life of a scheduler, for probes and Prometheus; the alarm that nothing is pushed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from components.disk import write_whole
from pipeline.clock import is_future
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.lock import is_held
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import notify
from pipeline.schedule.cron import show_time
from trainer_module.settings.durations import show_duration

BEAT_SECONDS = 15.0
"""How often a scheduler gives a sign of life."""
SILENT_SECONDS = 120.0
"""A scheduler that has given none for so long hangs."""
LOOK_SECONDS = 900.0
"""What a look takes at most besides its run: it lists files, which may be many and far away."""

_HELP = {
    "heartbeat_timestamp_seconds": "When a scheduler last gave a sign of life.",
    "look_timestamp_seconds": "When the last look at the pipeline ended.",
    "look_exit_code": "What the last look came to: 0 is well, else as of `schedule --once`.",
    "push_timestamp_seconds": "When a model was last pushed.",
    "stale": "Whether nothing has been pushed for notify.stale_after.",
}


@dataclass
class _Pipeline:
    """What is known of one pipeline."""

    metrics_file: Path
    silent_until: float
    """By the monotonic clock, when the next sign of life of its look has to come."""
    values: dict[str, float]
    """Of the metrics."""


class Health:
    """What a scheduler is doing, for others to see; safe for several threads."""

    def __init__(self, layouts: Iterable[Layout]) -> None:
        """Writes nothing yet.

        Args:
          layouts: of the pipelines that it looks after, all below one output folder.
        """
        first_sign = time.monotonic() + LOOK_SECONDS
        self._pipelines = {
            layout.name: _Pipeline(layout.metrics, first_sign, {}) for layout in layouts
        }
        self._lock = threading.Lock()
        self._next_beat = 0.0

    def expect(self, name: str, seconds: float) -> None:
        """The next sign of life of a pipeline's look comes within so many seconds."""
        with self._lock:
            self._pipelines[name].silent_until = time.monotonic() + seconds

    def looked(self, name: str, exit_code: int, pushed: datetime | None, is_stale: bool) -> None:
        """A look has ended; its metrics are written at once."""
        with self._lock:
            found = self._pipelines[name]
            found.values = {
                "look_timestamp_seconds": time.time(),
                "look_exit_code": exit_code,
                **({} if pushed is None else {"push_timestamp_seconds": pushed.timestamp()}),
                "stale": is_stale,
            }
            _write_metrics(name, found)

    def beat(self, heartbeat_file: Path) -> None:
        """Gives a sign of life, unless the last one is recent.

        Raises:
          OSError: it cannot be written.
        """
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_SECONDS
        with self._lock:
            silent = {name: found.silent_until for name, found in self._pipelines.items()}
            beat = {"process": os.getpid(), "beat": time.monotonic(), "silent_until": silent}
            heartbeat_file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(heartbeat_file, json.dumps(beat))
            for name, found in self._pipelines.items():
                _write_metrics(name, found)


def find_ailment(lock_file: Path, heartbeat_file: Path, names: Iterable[str]) -> str | None:
    """What is wrong with the scheduler of an output folder, for a probe on its machine.

    Args:
      lock_file: which it holds.
      heartbeat_file: which it writes.
      names: the pipelines that it has to look after.

    Returns:
      A sentence; None if it is well.
    """
    if not is_held(lock_file):
        return f"{lock_file.parent}: no scheduler is at work here"
    try:
        beat: dict[str, Any] = json.loads(heartbeat_file.read_text())
        process, last, silent = beat["process"], float(beat["beat"]), dict(beat["silent_until"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{heartbeat_file}: no sign of life can be read; a scheduler writes it as it begins"
    # All processes of a machine have one monotonic clock, which nobody sets.
    now = time.monotonic()
    if not 0 <= now - last <= SILENT_SECONDS:
        return (
            f"{heartbeat_file}: process {process} has given no sign of life for {now - last:.0f} s"
        )
    for name in names:
        if name not in silent:
            return f"{name}: process {process} does not look after it"
        if now > silent[name]:
            return f"{name}: process {process} hangs in a look, {now - silent[name]:.0f} s overdue"
    return None


def _write_metrics(name: str, found: _Pipeline) -> None:
    """Writes what is known of a pipeline as Prometheus's textfile collector reads it."""
    values = {"heartbeat_timestamp_seconds": time.time(), **found.values}
    lines = [
        f"# HELP scopeline_{metric} {_HELP[metric]}\n# TYPE scopeline_{metric} gauge\n"
        f'scopeline_{metric}{{pipeline="{name}"}} {float(value):.3f}\n'
        for metric, value in values.items()
    ]
    found.metrics_file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(found.metrics_file, "".join(lines))


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
    by_clock = (EventKind.DUE, EventKind.SKIPPED, EventKind.CLOCK_SET_BACK)
    later = (e.at for e in event_log.events(*by_clock) if e.id > pushed.id)
    believed = next((moment for moment in later if not is_future(moment, now)), None)
    if believed is None:  # What follows counts from here; a push by now would never be stale.
        message = "the last push is dated in the future: it counts as made by now"
        event_log.record(EventKind.CLOCK_SET_BACK, message, at=now)
    return believed or now


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
