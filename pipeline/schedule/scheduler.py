"""The scheduler that runs until it is stopped, and its one look around for `--once`."""

from __future__ import annotations

import importlib.util
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from pipeline.config.schedule import ScheduleSettings, show_duration
from pipeline.exit_codes import EXIT_INTERRUPTED, EXIT_PUSHED
from pipeline.schedule.check import (
    CheckContext,
    ScheduledPipeline,
    check_pipeline,
    load_scheduled,
)
from pipeline.schedule.cron import next_firings, show_time
from pipeline.schedule.store import opened_store
from trainer_module.errors import ConfigError, InternalError

_STOP = threading.Event()
"""Set by the signals that end a scheduler; jobs are functions of a module, and find it here."""
_LOOK_SECONDS = 0.5


def default_runner() -> tuple[str, ...]:
    """The command that runs a pipeline: this Python, and the runner beside this package."""
    spec = importlib.util.find_spec("local_runner")
    if spec is None or spec.origin is None:
        raise ConfigError("local_runner.py is not installed beside the package `pipeline`")
    return (sys.executable, spec.origin)


def system_clock() -> datetime:
    """Now, with the machine's time zone."""
    return datetime.now().astimezone()


class CheckTrigger(BaseTrigger):
    """Fires when the clock does, and every so often besides: data comes when it comes."""

    def __init__(self, settings: ScheduleSettings) -> None:
        self.settings = settings

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """The next look; those that were missed are one."""
        polled = now + self.settings.poll
        firings = next_firings(self.settings, now, 1)
        return min([polled, *firings], key=datetime.timestamp).astimezone(UTC)

    def __str__(self) -> str:
        return f"{self.settings.cron}, every {show_duration(self.settings.poll)}"


class Log:
    """Says what happens, a line each; what a pipeline's last look said already is not repeated."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._last: dict[str, str] = {}

    def __call__(self, name: str, line: str) -> None:
        """Prints a line about a pipeline, with the local time."""
        if self._last.get(name) != line:
            self._last[name] = line
            at = self._clock().strftime("%Y-%m-%d %H:%M:%S")
            print(f"{at}  {name}: {line}", flush=True)  # noqa: T201 - the scheduler's own log


_LOG = Log(system_clock)


def watch_all(
    configs: Sequence[Path], overrides: Sequence[str], output: Path, verbose: bool = False
) -> list[ScheduledPipeline]:
    """The pipelines of some configs.

    Raises:
      ConfigError: a config is bad or has no schedule, or two have one name.
    """
    found: dict[str, ScheduledPipeline] = {}
    for config in configs:
        scheduled = ScheduledPipeline.of(config, overrides, output, verbose)
        if scheduled.name in found:
            raise ConfigError(
                f"{config}: its name is {scheduled.name!r}, as that of "
                f"{found[scheduled.name].config}; "
                "pipelines of one output folder have a name each"
            )
        found[scheduled.name] = scheduled
    return list(found.values())


def check_once(
    pipelines: Sequence[ScheduledPipeline],
    store: Path,
    runner: Sequence[str],
    clock: Callable[[], datetime],
) -> int:
    """Looks at each pipeline once, and runs what is due, one after another.

    Returns:
      The worst exit code of a run: 0, 1, 2, or 130 if it was told to stop.

    Raises:
      ConfigError: another scheduler is at work on the store.
    """
    with opened_store(store), _stopping():
        context = CheckContext(tuple(runner), clock, _STOP, Log(clock))
        worst = EXIT_PUSHED
        for scheduled in pipelines:
            worst = max(worst, check_pipeline(scheduled, context)[0])
            if _STOP.is_set():
                return EXIT_INTERRUPTED
    return worst


def serve(pipelines: Sequence[ScheduledPipeline], store: Path, runner: Sequence[str]) -> None:
    """Looks after pipelines until SIGTERM or Ctrl-C; runs under way are then stopped.

    Raises:
      ConfigError: another scheduler is at work on the store, or the store is bad.
      InternalError: the store could not be written any more.
    """
    with opened_store(store), _stopping():
        scheduler = _make_scheduler(store, len(pipelines))
        # Worked off by this thread: a job's own would wait for locks that a shutdown holds.
        ended: SimpleQueue[JobExecutionEvent] = SimpleQueue()
        scheduler.add_listener(ended.put, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        scheduler.start(paused=True)
        names = {scheduled.name for scheduled in pipelines}
        for job in scheduler.get_jobs():
            if job.id not in names:
                scheduler.remove_job(job.id)
        for scheduled in pipelines:
            settings = load_scheduled(scheduled.config, scheduled.overrides).schedule_or_default
            _LOG(scheduled.name, _greeting(settings))
            scheduler.add_job(
                run_check,
                CheckTrigger(settings),
                args=[scheduled, tuple(runner)],
                id=scheduled.name,
                replace_existing=True,
                next_run_time=datetime.now(UTC),
            )
        scheduler.resume()
        while not _STOP.wait(_LOOK_SECONDS):
            while not ended.empty():
                _after_check(scheduler, ended.get())
            if not scheduler._thread.is_alive():
                break
        has_failed = not _STOP.is_set()
        _STOP.set()
        scheduler.shutdown(wait=True)
    if has_failed:
        raise InternalError(f"{store}: the store failed, and nothing fired any more; start again")


def run_check(scheduled: ScheduledPipeline, runner: tuple[str, ...]) -> ScheduleSettings | None:
    """The job: one look at a pipeline; its schedule as the config has it now."""
    return check_pipeline(scheduled, CheckContext(runner, system_clock, _STOP, _LOG))[1]


def _make_scheduler(store: Path, pipelines: int) -> BackgroundScheduler:
    # What it has to say of its own is about looks that it leaves out while a run is under way.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    return BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=f"sqlite:///{store}")},
        executors={"default": ThreadPoolExecutor(pipelines)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )


def _after_check(scheduler: BackgroundScheduler, event: JobExecutionEvent) -> None:
    """Follows a schedule that has changed in its file."""
    if event.exception is not None:
        _LOG(event.job_id, f"internal error: {event.exception!r}\n{event.traceback}")
        return
    job, settings = scheduler.get_job(event.job_id), event.retval
    if job is not None and settings is not None and job.trigger.settings != settings:
        scheduler.reschedule_job(event.job_id, trigger=CheckTrigger(settings))
        _LOG(event.job_id, f"the schedule has changed; {_greeting(settings)}")


def _greeting(settings: ScheduleSettings) -> str:
    firings = next_firings(settings, system_clock(), 1)
    fires = [f"the clock fires next at {show_time(firing, settings)}" for firing in firings]
    return "; ".join([f"looks every {show_duration(settings.poll)}", *fires])


@contextmanager
def _stopping() -> Iterator[None]:
    """SIGTERM and Ctrl-C set the event, and no more; the earlier handlers come back at the end."""
    _STOP.clear()
    signals = (signal.SIGTERM, signal.SIGINT)
    earlier = [signal.signal(number, lambda *_: _STOP.set()) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, earlier, strict=True):
            signal.signal(number, handler)
