"""Checks pipelines until a signal stops the scheduler, or once for `--once`."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import inf
from pathlib import Path

from components.processes.stopping import handle_signals
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
"""The seconds between checks for the stop event and for the next check."""


def default_runner() -> tuple[str, ...]:
    """Returns the command that runs a pipeline: this Python, and `local_runner.py`."""
    if not LOCAL_RUNNER.is_file():
        raise ConfigError(f"{LOCAL_RUNNER}: there is no such file; reinstall Scopeline")
    return (sys.executable, str(LOCAL_RUNNER))


class ConsoleLog:
    """A log on the console that skips repeated lines of a pipeline."""

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
      lock_file: the lock of the output folder's scheduler.
      runner: the command that runs a pipeline.
      clock: the clock for decisions.

    Returns:
      The worst exit code: 0, 75, 1, 2, or 130 if a signal stopped the check early.

    Raises:
      ConfigError: another scheduler is active, or the output folder cannot be written.
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
    """Schedules pipelines until SIGTERM or Ctrl-C, which also stop the runs in progress.

    Each pipeline has its own thread. The scheduler itself has no state: decisions
    and runs are in the pipelines' event logs, and the time of the next check follows from their
    configs.

    Args:
      lock_file: the lock of the output folder's scheduler.
      runner: the command that runs a pipeline.

    Raises:
      ConfigError: another scheduler is active, or the output folder cannot be written.
      InternalError: a thread has ended.
    """
    with only_scheduler(lock_file), _stop_on_signals() as stop:
        health, console = _health_of(pipelines), ConsoleLog(system_clock)
        heartbeat_file = Layout(pipelines[0].output, pipelines[0].name).heartbeat
        context = CheckContext(tuple(runner), system_clock, stop, console, health)
        threads = []
        for pipeline in pipelines:
            settings = pipeline.load_config().schedule_or_default
            console(pipeline.name, _describe(settings))
            threads.append(
                threading.Thread(target=_check_repeatedly, args=(pipeline, settings, context))
            )
        try:
            for thread in threads:
                thread.start()
            # This thread sleeps instead of waiting for the event. A signal handler runs in this
            # thread: setting an event that the same thread is about to wait for can block forever.
            while not stop.is_set() and all(thread.is_alive() for thread in threads):
                _beat(health, heartbeat_file, context)
                time.sleep(_POLL_SECONDS)
            is_stopped_by_user = stop.is_set()
        finally:
            stop.set()
            for thread in threads:
                if thread.ident is not None:  # The machine may have run out of threads.
                    thread.join()
            wait_for_deliveries()
    if not is_stopped_by_user:
        raise InternalError("a thread of the scheduler has ended; restart the scheduler")


def _check_repeatedly(
    pipeline: ScheduledPipeline, settings: ScheduleSettings, context: CheckContext
) -> None:
    """Checks a pipeline immediately, and then according to its schedule, until the stop event is
    set.
    """
    while not context.stop.is_set():
        is_due = make_due_check(settings)
        current: ScheduleSettings | None = None
        try:
            _, current = check_pipeline(pipeline, context)
        except Exception as error:  # The next check may succeed.
            context.report(pipeline.name, f"internal error: {error!r}\n{traceback.format_exc()}")
        if current is not None and current != settings:
            settings, is_due = current, make_due_check(current)
            context.report(pipeline.name, f"the schedule has changed; {_describe(settings)}")
        while not (is_due() or context.stop.wait(_POLL_SECONDS)):
            pass


def make_due_check(settings: ScheduleSettings) -> Callable[[], bool]:
    """Returns a function that returns whether a check is due, because of a firing or of `poll`.

    `poll` is measured by the monotonic clock, firings by the machine's clock, so that setting the
    machine's clock does not stop polling.
    """
    deadline = time.monotonic() + settings.poll.total_seconds()
    firing = min((f.timestamp() for f in next_firings(settings, system_clock(), 1)), default=inf)
    return lambda: time.monotonic() >= deadline or time.time() >= firing


def _health_of(pipelines: Sequence[ScheduledPipeline]) -> Health:
    return Health([Layout(pipeline.output, pipeline.name) for pipeline in pipelines])


def _beat(health: Health, heartbeat_file: Path, context: CheckContext) -> None:
    """Writes a heartbeat; a write error, such as a full disk, does not end the scheduler."""
    try:
        health.beat(heartbeat_file)
    except OSError as error:
        context.report("scheduler", f"{error.filename or heartbeat_file}: {error.strerror}")


def _describe(settings: ScheduleSettings) -> str:
    """Returns the polling interval of a pipeline, and its next firing."""
    firings = next_firings(settings, system_clock(), 1)
    fires = [f"cron fires next at {show_time(firing, settings)}" for firing in firings]
    return "; ".join([f"checks every {show_duration(settings.poll)}", *fires])


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Yields an event that SIGTERM and Ctrl-C set; restores the earlier handlers at the end."""
    stop = threading.Event()
    with handle_signals(lambda *_: stop.set()):
        yield stop
