"""How a run that a scheduler started has ended, recorded also where the run could not do so."""

from __future__ import annotations

import signal

from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_LATER,
    EXIT_NOT_BLESSED,
    EXIT_NOT_PUSHED,
    EXIT_PUSHED,
)
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import notify
from pipeline.schedule.decisions.decision import is_run_under_way
from pipeline.schedule.decisions.history import read_history
from pipeline.schedule.run_process import ProcessResult
from trainer_module.settings.durations import show_duration


def settle_run(
    config: PipelineConfig | None,
    layout: Layout,
    event_log: EventLog,
    result: ProcessResult,
    is_stopping: bool,
) -> tuple[int, str]:
    """Makes sure that the event log has the end of a run.

    Args:
      config: says whom to notify; None if it cannot be used any more.
      layout: of the pipeline.
      event_log: of the pipeline.
      result: how the run's process ended.
      is_stopping: whether the scheduler was told to stop.

    Returns:
      The exit code that counts for the check, and a line that says how the run ended.
    """
    history = read_history(event_log)
    end, code = history.end, result.exit_code
    if end is not None and end.kind is EventKind.FINISHED:
        return _exit_code(end), _describe(end, event_log)
    if result.timed_out is not None:
        limit = show_duration(result.timed_out)
        end = _record_failure(
            config, event_log, f"ran longer than {limit}, and was stopped", "timed out"
        )
    elif is_stopping and code != -signal.SIGKILL:
        return EXIT_INTERRUPTED, "stopped; the next scheduler goes on with it"
    elif end is None and code == EXIT_LATER:
        # Such as of a run that somebody started by hand a moment earlier: the next check goes on.
        _record_wait(config, layout, event_log, result.last_line)
        return EXIT_LATER, result.last_line
    elif end is None or history.is_unfinished:
        end = _record_exit(config, event_log, result)
    return _exit_code(end), _describe(end, event_log)


def _record_wait(
    config: PipelineConfig | None, layout: Layout, event_log: EventLog, message: str
) -> None:
    """Records once why a run did not begin, and notifies of it if no other run was the reason."""
    last = event_log.last(EventKind.SKIPPED, EventKind.STARTED)
    if last and (last.kind, last.message) == (EventKind.SKIPPED, message):
        return
    event_log.record(EventKind.SKIPPED, message)
    if config is not None and not is_run_under_way(layout):
        notify(config.notify, config.name, Occasion.FAILED, message, {"how": "waits"}, event_log)


def _record_exit(
    config: PipelineConfig | None, event_log: EventLog, result: ProcessResult
) -> LoggedEvent:
    """Records the end of a run that ended without recording it."""
    code = result.exit_code
    if code < 0:
        return _record_failure(config, event_log, f"was killed by signal {-code}", "killed")
    message = result.last_line or f"exit code {code}"
    return _record_failure(config, event_log, message, "ended", code or EXIT_FAILED)


def _record_failure(
    config: PipelineConfig | None,
    event_log: EventLog,
    message: str,
    how: str,
    exit_code: int = EXIT_FAILED,
) -> LoggedEvent:
    """Records and notifies of a failure that the run itself could not record."""
    history = read_history(event_log)
    of_run = history.started if history.is_unfinished else history.end
    run = of_run.run if of_run else None
    event_log.record(EventKind.FAILED, message, run=run, exit_code=exit_code, how=how)
    if config is not None:
        notify(
            config.notify, config.name, Occasion.FAILED, message, {"how": how}, event_log, run=run
        )
    return event_log.events(EventKind.FAILED, newest=1)[0]


def _describe(end: LoggedEvent, event_log: EventLog) -> str:
    """How a run ended, in one line."""
    if end.kind is EventKind.FAILED:
        return f"failed: {end.message}"
    pushed = event_log.events(EventKind.PUSHED, run=end.run) if end.run else []
    version = f", version {pushed[-1].details['version']}" if pushed else ""
    return f"finished: {end.details['status'].replace('_', ' ')}{version}"


def _exit_code(end: LoggedEvent) -> int:
    """The exit code of a run for `schedule --once`, where no push is no failure."""
    code = int(end.details.get("exit_code", EXIT_FAILED))
    return EXIT_PUSHED if code in (EXIT_NOT_BLESSED, EXIT_NOT_PUSHED) else code
