"""The scheduler that runs until it is stopped, and the single check of `--once`."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from components.processes.stopping import handled
from pipeline.clock import system_clock
from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.exit_codes import EXIT_INTERRUPTED, EXIT_PUSHED, worse
from pipeline.layout import Layout
from pipeline.lock import only_scheduler
from pipeline.own_modules import LOCAL_RUNNER
from pipeline.records.notify import wait_for_deliveries
from pipeline.schedule.check import CheckContext, check_pipeline
from pipeline.schedule.cron import next_firings, show_time
from pipeline.schedule.health import Health
from pipeline.schedule.scheduled_pipeline import ScheduledPipeline
from trainer_module.errors import ConfigError, InternalError
from trainer_module.settings.durations import show_duration

_POLL_SECONDS = 0.2
"""How often a scheduler that waits checks whether it is to stop, and whether the clock was set."""
_STEP_SECONDS = 1.0
"""A clock that gains or loses so much in an instant was set."""


def default_runner() -> tuple[str, ...]:
    """The command that runs a pipeline: this Python, and the runner beside this package."""
    if not LOCAL_RUNNER.is_file():
        raise ConfigError(f"{LOCAL_RUNNER}: there is no such file; install Scopeline anew")
    return (sys.executable, str(LOCAL_RUNNER))


class CheckTrigger(BaseTrigger):
    """Fires when the cron expression does, and every `poll` to find new data."""

    def __init__(self, settings: ScheduleSettings) -> None:
        self.settings = settings

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """When to check next; checks that were missed are not made up for."""
        next_poll = now + self.settings.poll
        firings = next_firings(self.settings, now, 1)
        return min([next_poll, *firings], key=datetime.timestamp).astimezone(UTC)

    def __str__(self) -> str:
        return f"{self.settings.cron}, every {show_duration(self.settings.poll)}"


class ClockWatch:
    """Notices when the clock is set, by the one that only goes on."""

    def __init__(self) -> None:
        self._offset = self._measure()

    def step(self) -> float:
        """Seconds by which the clock was set since the last call; what it gains slowly is none."""
        before, self._offset = self._offset, self._measure()
        step = self._offset - before
        return step if abs(step) >= _STEP_SECONDS else 0.0

    @staticmethod
    def _measure() -> float:
        return time.time() - time.monotonic()


class ConsoleLog:
    """Prints what happens, but no line that repeats the pipeline's last one."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._last: dict[str, str] = {}

    def __call__(self, name: str, line: str) -> None:
        """Prints a line about a pipeline, with the local time."""
        if self._last.get(name) != line:
            self._last[name] = line
            at = self._clock().strftime("%Y-%m-%d %H:%M:%S")
            print(f"{at}  {name}: {line}", flush=True)  # noqa: T201 - the scheduler's own log


def check_once(
    pipelines: Sequence[ScheduledPipeline],
    lock_file: Path,
    runner: Sequence[str],
    clock: Callable[[], datetime],
) -> int:
    """Checks each pipeline once, one after another, and runs what is due.

    Args:
      pipelines: to check.
      lock_file: keeps other schedulers off the output folder.
      runner: the command that runs a pipeline.
      clock: what the decisions go by.

    Returns:
      The worst exit code: 0, 75, 1, 2, or 130 if it was told to stop before all was done.

    Raises:
      ConfigError: another scheduler is at work, or the output folder cannot be written.
    """
    with only_scheduler(lock_file), _stop_on_signals() as stop:
        context = CheckContext(tuple(runner), clock, stop, ConsoleLog(clock), _health_of(pipelines))
        worst_code = EXIT_PUSHED
        for pipeline in pipelines:
            if stop.is_set():
                worst_code = EXIT_INTERRUPTED
                break
            worst_code = worse(worst_code, check_pipeline(pipeline, context)[0])
        wait_for_deliveries()
    return worst_code


def serve(pipelines: Sequence[ScheduledPipeline], lock_file: Path, runner: Sequence[str]) -> None:
    """Looks after pipelines until SIGTERM or Ctrl-C; runs under way are then stopped.

    Each pipeline is checked at once. Nothing that a scheduler knows has to outlive it: what was
    decided and run stands in the pipelines' event logs, and when to check next in their configs.

    Args:
      pipelines: to look after.
      lock_file: keeps other schedulers off the output folder.
      runner: the command that runs a pipeline.

    Raises:
      ConfigError: another scheduler is at work, or the output folder cannot be written.
      InternalError: the thread that starts the checks has ended.
    """
    with only_scheduler(lock_file), _stop_on_signals() as stop:
        health, console = _health_of(pipelines), ConsoleLog(system_clock)
        heartbeat_file = Layout(pipelines[0].output, pipelines[0].name).heartbeat
        context = CheckContext(tuple(runner), system_clock, stop, console, health)
        scheduler = _make_scheduler(len(pipelines))
        # The listener, which runs in a check's thread, only passes the end of a check on. Handled
        # there, it would wait for locks that `shutdown` holds while it waits for that thread.
        ended: SimpleQueue[JobExecutionEvent] = SimpleQueue()
        scheduler.add_listener(ended.put, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        for pipeline in pipelines:
            _add_job(scheduler, pipeline, context)
        scheduler.start()
        watch = ClockWatch()
        # Waits for the queue, not for the event: a signal's handler runs in this thread, where
        # setting an event that the thread is about to wait for can block for ever.
        while not stop.is_set() and scheduler._thread.is_alive():
            with suppress(Empty):
                _handle_check_end(scheduler, ended.get(timeout=_POLL_SECONDS), context)
            _beat(health, heartbeat_file, context)
            if step := watch.step():
                _look_at_once(scheduler, step, context)
        was_told_to_stop = stop.is_set()
        stop.set()
        scheduler.shutdown(wait=True)
        wait_for_deliveries()
    if not was_told_to_stop:
        raise InternalError(
            "the scheduler's thread has ended, and nothing fires any more; start again"
        )


def _health_of(pipelines: Sequence[ScheduledPipeline]) -> Health:
    return Health([Layout(pipeline.output, pipeline.name) for pipeline in pipelines])


def _beat(health: Health, heartbeat_file: Path, context: CheckContext) -> None:
    """Gives a sign of life; a disk that is full for it alone ends no scheduler."""
    try:
        health.beat(heartbeat_file)
    except OSError as error:
        context.report("scheduler", f"{error.filename or heartbeat_file}: {error.strerror}")


def _make_scheduler(threads: int) -> BackgroundScheduler:
    # What APScheduler logs is about checks that it leaves out while a run is under way.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    return BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(threads)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )


def _add_job(
    scheduler: BackgroundScheduler, pipeline: ScheduledPipeline, context: CheckContext
) -> None:
    """Has a pipeline checked at once, and then whenever its schedule says."""
    settings = pipeline.load_config().schedule_or_default
    context.report(pipeline.name, _describe(settings))
    scheduler.add_job(
        lambda: check_pipeline(pipeline, context)[1],
        CheckTrigger(settings),
        id=pipeline.name,
        next_run_time=datetime.now(UTC),
    )


def _look_at_once(scheduler: BackgroundScheduler, step: float, context: CheckContext) -> None:
    """Has all pipelines checked now: their next times were those of a clock that was set since."""
    amount, where = timedelta(seconds=round(abs(step))), "back" if step < 0 else "forward"
    for job in scheduler.get_jobs():
        context.report(job.id, f"the clock was set {where} by {amount}; looks at once")
        job.modify(next_run_time=datetime.now(UTC))


def _handle_check_end(
    scheduler: BackgroundScheduler, event: JobExecutionEvent, context: CheckContext
) -> None:
    """Applies a schedule that has changed in its file; reports an error of our own."""
    if event.exception is not None:
        line = f"internal error: {event.exception!r}\n{event.traceback}"
        context.report(event.job_id, line)
        return
    job, settings = scheduler.get_job(event.job_id), event.retval
    if job is not None and settings is not None and job.trigger.settings != settings:
        scheduler.reschedule_job(event.job_id, trigger=CheckTrigger(settings))
        context.report(event.job_id, f"the schedule has changed; {_describe(settings)}")


def _describe(settings: ScheduleSettings) -> str:
    """How often a pipeline is checked, and when its clock fires next."""
    firings = next_firings(settings, system_clock(), 1)
    fires = [f"the clock fires next at {show_time(firing, settings)}" for firing in firings]
    return "; ".join([f"looks every {show_duration(settings.poll)}", *fires])


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set; the earlier handlers come back at the end."""
    stop = threading.Event()
    with handled(lambda *_: stop.set()):
        yield stop
