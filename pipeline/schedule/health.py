"""The health of a scheduler, for probes and Prometheus, and the alarm for overdue pushes."""

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

from components.disk import write_atomically
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
"""The interval of heartbeats, in seconds."""
SILENT_SECONDS = 120.0
"""The age of a heartbeat above which a scheduler counts as hanging, in seconds."""
CHECK_SECONDS = 900.0
"""The time limit of a check without its run, in seconds. A check may list many remote files."""

_HELP = {
    "heartbeat_timestamp_seconds": "Time of the scheduler's last heartbeat.",
    "look_timestamp_seconds": "Time when the last check of the pipeline ended.",
    "look_exit_code": "Exit code of the last check, as of `schedule --once`: 0 means no problem.",
    "push_timestamp_seconds": "Time of the last push.",
    "stale": "1 if no model was pushed for notify.stale_after, otherwise 0.",
}


@dataclass
class _Pipeline:
    """The health of a single pipeline."""

    metrics_file: Path
    silent_until: float
    """The monotonic time by which the next report of the pipeline's check is due."""
    values: dict[str, float]


class Health:
    """The health of a scheduler and its pipelines; safe for several threads."""

    def __init__(self, layouts: Iterable[Layout]) -> None:
        """Prepares the state of each pipeline; writes nothing.

        Args:
          layouts: the layouts of the scheduler's pipelines, all below one output folder.
        """
        first_report = time.monotonic() + CHECK_SECONDS
        self._pipelines = {
            layout.name: _Pipeline(layout.metrics, first_report, {}) for layout in layouts
        }
        self._lock = threading.Lock()
        self._next_beat = 0.0

    def expect(self, name: str, seconds: float) -> None:
        """Sets the time within which a pipeline's check has to report again."""
        with self._lock:
            self._pipelines[name].silent_until = time.monotonic() + seconds

    def record_check(
        self, name: str, exit_code: int, pushed: datetime | None, is_stale: bool
    ) -> None:
        """Stores the result of a check, and writes its metrics."""
        with self._lock:
            pipeline = self._pipelines[name]
            pipeline.values = {
                "look_timestamp_seconds": time.time(),
                "look_exit_code": exit_code,
                **({} if pushed is None else {"push_timestamp_seconds": pushed.timestamp()}),
                "stale": is_stale,
            }
            _write_metrics(name, pipeline)

    def beat(self, heartbeat_file: Path) -> None:
        """Writes a heartbeat, unless the last one is recent.

        Raises:
          OSError: the heartbeat cannot be written.
        """
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_SECONDS
        with self._lock:
            silent = {name: pipeline.silent_until for name, pipeline in self._pipelines.items()}
            beat = {"process": os.getpid(), "beat": time.monotonic(), "silent_until": silent}
            heartbeat_file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(heartbeat_file, json.dumps(beat))
            for name, pipeline in self._pipelines.items():
                _write_metrics(name, pipeline)


def find_scheduler_problem(
    lock_file: Path, heartbeat_file: Path, names: Iterable[str]
) -> str | None:
    """Returns the problem of the scheduler of an output folder, for a probe on its machine.

    Args:
      lock_file: the lock file that the scheduler holds.
      heartbeat_file: the file that the scheduler writes.
      names: the pipelines that the scheduler must handle.

    Returns:
      A sentence, or None if there is no problem.
    """
    if not is_held(lock_file):
        return f"{lock_file.parent}: no scheduler is running in this output folder"
    try:
        beat: dict[str, Any] = json.loads(heartbeat_file.read_text())
        process, last, silent = beat["process"], float(beat["beat"]), dict(beat["silent_until"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{heartbeat_file}: no heartbeat can be read; a scheduler writes it when it starts"
    # All processes of a machine share one monotonic clock, which cannot be set.
    now = time.monotonic()
    if not 0 <= now - last <= SILENT_SECONDS:
        return (
            f"{heartbeat_file}: process {process} has written no heartbeat for {now - last:.0f} s"
        )
    for name in names:
        if name not in silent:
            return f"{name}: process {process} does not schedule this pipeline"
        if now > silent[name]:
            return f"{name}: the check of process {process} is {now - silent[name]:.0f} s overdue"
    return None


def _write_metrics(name: str, pipeline: _Pipeline) -> None:
    """Writes the metrics of a pipeline for Prometheus's textfile collector."""
    values = {"heartbeat_timestamp_seconds": time.time(), **pipeline.values}
    lines = [
        f"# HELP scopeline_{metric} {_HELP[metric]}\n# TYPE scopeline_{metric} gauge\n"
        f'scopeline_{metric}{{pipeline="{name}"}} {float(value):.3f}\n'
        for metric, value in values.items()
    ]
    pipeline.metrics_file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(pipeline.metrics_file, "".join(lines))


_REASONS = (
    EventKind.FAILED,
    EventKind.FINISHED,
    EventKind.SKIPPED,
    EventKind.UNUSABLE_SPAN,
    EventKind.LEFT_OUT,
)
"""The events that may explain a missing push."""
_HOURS_SHOWN = 48
"""The number of hours from which messages show an age in days."""


def check_staleness(
    config: PipelineConfig, event_log: EventLog, now: datetime, last: datetime | None
) -> bool:
    """Sends an alarm if the last push is older than `notify.stale_after`.

    The alarm is sent again after each further period. After the next push, the end of the alarm is
    sent.

    Args:
      event_log: the event log of the pipeline, which records the alarm.
      last: the time of the last push, from `last_push`.

    Returns:
      Whether the pipeline is stale.
    """
    limit, alarm = config.notify.stale_after, event_log.last(EventKind.STALE)
    if limit is None:
        return False
    pushed = event_log.last(EventKind.PUSHED)
    is_raised = alarm is not None and not alarm.details["over"]
    if is_raised and alarm and pushed and pushed.id > alarm.id:
        _record_and_notify(
            config, event_log, now, f"over: a model was pushed again, {pushed.message}", True
        )
        is_raised = False
    since = last or _first_event(event_log, now)
    if now - since < limit:
        return False
    if is_raised and alarm and timedelta() <= now - alarm.at < limit:
        return True
    status = "nothing has been pushed since" if pushed else "nothing has ever been pushed since"
    message = (
        f"{status} {show_time(since, config.schedule_or_default)}, for {_show_age(now - since)} "
        f"(notify.stale_after: {show_duration(limit)})"
    )
    cause = event_log.last(*_REASONS)
    _record_and_notify(
        config,
        event_log,
        now,
        message + (f"; the last event: {_describe_event(cause)}" if cause else ""),
    )
    return True


def last_push(event_log: EventLog, now: datetime) -> datetime | None:
    """Returns the time of the last push, or None.

    A push with a time in the future gets the time of the next event that is not in the future.
    """
    pushed = event_log.last(EventKind.PUSHED)
    if pushed is None or not is_future(pushed.at, now):
        return pushed.at if pushed else None
    by_clock = (EventKind.DUE, EventKind.SKIPPED, EventKind.CLOCK_SET_BACK)
    later = (e.at for e in event_log.events(*by_clock) if e.id > pushed.id)
    plausible = next((moment for moment in later if not is_future(moment, now)), None)
    if plausible is None:  # Later checks use this event; with `now`, the push would never be stale.
        message = "the last push is dated in the future: the time of this check counts instead"
        event_log.record(EventKind.CLOCK_SET_BACK, message, at=now)
    return plausible or now


def _first_event(event_log: EventLog, now: datetime) -> datetime:
    """Returns the time of the pipeline's first event."""
    first = event_log.first()
    return now if first is None else min(now, first.at)


def _record_and_notify(
    config: PipelineConfig, event_log: EventLog, now: datetime, message: str, over: bool = False
) -> None:
    event_log.record(EventKind.STALE, message, at=now, over=over)
    notify(config.notify, config.name, Occasion.STALE, message, {"over": over}, event_log)


def _describe_event(event: LoggedEvent) -> str:
    status = event.details.get("status", event.kind.value)
    return f"{str(status).replace('_', ' ')}: {event.message}"


def _show_age(age: timedelta) -> str:
    """Returns an age as text, such as `37 h` or `3 days`."""
    hours = int(age.total_seconds() // 3600)
    return f"{hours} h" if hours < _HOURS_SHOWN else f"{age.days} days"
