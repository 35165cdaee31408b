"""Checks a pipeline once: decides whether a run is due, records the decision, and runs it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pipeline.config.sections.data import span_kind
from pipeline.config.sections.notify import Occasion
from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_LATER,
    EXIT_NOT_BLESSED,
    EXIT_NOT_PUSHED,
    EXIT_PUSHED,
    EXIT_UNUSABLE,
    exit_code_of,
    worse,
)
from pipeline.layout import Layout
from pipeline.lock import make_root
from pipeline.records.data_records import new_requests
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import check_secrets, notify
from pipeline.schedule.decision import Due, NotDue, decide, is_run_under_way
from pipeline.schedule.health import CHECK_SECONDS, Health, check_staleness, last_push
from pipeline.schedule.history import read_history
from pipeline.schedule.record import (
    describe_lasting_problem,
    note_decision,
    record_decision,
)
from pipeline.schedule.run_process import (
    SCHEDULED_RUN_GRACE_SECONDS,
    ProcessResult,
    end_overdue,
    run_process,
)
from pipeline.schedule.scheduled_pipeline import ScheduledPipeline
from trainer_module.errors import ConfigError, InternalError, ScopelineError
from trainer_module.settings.durations import show_duration

COMPARISON_TIMEOUT = timedelta(minutes=10)
"""The time limit for comparing requests with the training data, which takes seconds."""
_RUN = "run"
"""The runner's command that runs a pipeline."""
MAX_RUNS_PER_CHECK = 5
"""The maximum number of runs in one check, which may resume a run, check for drift, and train."""


@dataclass(frozen=True)
class CheckContext:
    """The arguments of a check, except the pipeline."""

    runner: tuple[str, ...]
    """The command to which `run` and its options are appended."""
    clock: Callable[[], datetime]
    stop: threading.Event
    """An event. Once it is set, the run in progress stops and no other run starts."""
    report: Callable[[str, str], None]
    """A function that receives a pipeline's name and a line about it."""
    health: Health
    """The health state, updated with each check."""
    configs: dict[str, PipelineConfig] = field(default_factory=dict)
    """The last valid config of each pipeline, for notifications while the current config is
    invalid.
    """


def check_pipeline(
    pipeline: ScheduledPipeline, context: CheckContext
) -> tuple[int, ScheduleSettings | None]:
    """Decides whether a run is due, and runs it, until nothing more is due.

    Returns:
      The worst exit code, and the schedule in the current config, or None if the config is invalid.
      A model that is not blessed counts as 0. A failure counts at every check until its cause is
      fixed. The code of a stopped check is 130.
    """
    context.health.expect(pipeline.name, CHECK_SECONDS)
    code, config = _run_due(pipeline, context)
    last_valid = config or context.configs.get(pipeline.name)
    if last_valid is not None:
        _conclude(pipeline, last_valid, code, context)
    return code, config.schedule if config else None


def _conclude(
    pipeline: ScheduledPipeline, config: PipelineConfig, code: int, context: CheckContext
) -> None:
    """Sends an alarm if a push is overdue, and writes the metrics of the check."""
    layout, now = Layout.of(config.name, config.push, pipeline.output), context.clock()
    event_log = EventLog(layout.event_log)
    try:
        pushed = last_push(event_log, now)
        is_stale = check_staleness(config, event_log, now, pushed)
        context.health.record_check(pipeline.name, code, pushed, is_stale)
    except (ScopelineError, OSError) as error:
        context.report(pipeline.name, f"the metrics of this check cannot be written: {error}")
    context.health.expect(
        pipeline.name, config.schedule_or_default.poll.total_seconds() + CHECK_SECONDS
    )


def _run_due(
    pipeline: ScheduledPipeline, context: CheckContext
) -> tuple[int, PipelineConfig | None]:
    """Runs what is due; returns the worst exit code, and the current config if it is valid."""
    config, worst_code = None, EXIT_PUSHED
    try:
        worst_code = _enforce_time_limit(pipeline, context)
        for _ in range(MAX_RUNS_PER_CHECK):
            config = None
            config = context.configs[pipeline.name] = _reload_config(pipeline, context)
            worst_code = worse(worst_code, _compare_requests(pipeline, config, context))
            code = _decide_and_run(pipeline, config, context)
            worst_code = worse(worst_code, code or EXIT_PUSHED)
            if code != EXIT_PUSHED:
                break
    except ScopelineError as error:
        context.report(pipeline.name, str(error))
        worst_code = worse(worst_code, exit_code_of(error))
    except OSError as error:
        path, reason = error.filename or pipeline.output, error.strerror or error
        context.report(pipeline.name, f"{path}: {reason}")
        worst_code = worse(worst_code, EXIT_FAILED)
    return worst_code, config


def _enforce_time_limit(pipeline: ScheduledPipeline, context: CheckContext) -> int:
    """Ends a command that exceeds its time limit after its scheduler was killed; records the end.

    Returns:
      The exit code of the check, or 0 if no command is overdue.

    Raises:
      InternalError: an overdue command cannot be ended.
    """
    layout, now = Layout(pipeline.output, pipeline.name), context.clock()
    event_log, config = EventLog(layout.event_log), context.configs.get(pipeline.name)
    with suppress(ConfigError):  # An overdue run ends even if the config is invalid.
        config = pipeline.load_config()
    try:
        limit = end_overdue(layout.scheduled)
    except InternalError as error:
        if record_decision(NotDue(str(error), {}, EXIT_FAILED), event_log, now) and config:
            notify(config.notify, config.name, Occasion.FAILED, str(error), {}, event_log)
        raise
    if limit is None:
        return EXIT_PUSHED
    if limit.command == _RUN:
        result = ProcessResult(-signal.SIGKILL, limit.timeout)
        code, line = settle_run(config, layout, event_log, result, is_stopping=False)
    else:
        code = EXIT_FAILED
        line = f"{limit.command} ran longer than {show_duration(limit.timeout)}, and was stopped"
    context.report(pipeline.name, line)
    return code


def _reload_config(pipeline: ScheduledPipeline, context: CheckContext) -> PipelineConfig:
    """Loads the current config; records the problem if it is invalid.

    Raises:
      ConfigError: the config is invalid.
    """
    try:
        config = pipeline.load_config()
        if config.name != pipeline.name:
            raise ConfigError(
                f"{pipeline.config_file}: `name` was {pipeline.name!r} and is {config.name!r} "
                "now; restart the scheduler"
            )
        check_secrets(config.notify)
    except ConfigError as error:
        layout = Layout(pipeline.output, pipeline.name)
        make_root(layout)
        event_log, now = EventLog(layout.event_log), context.clock()
        is_new = record_decision(NotDue(str(error), {}, EXIT_UNUSABLE), event_log, now)
        if is_new and (last_valid := context.configs.get(pipeline.name)):
            notify(last_valid.notify, last_valid.name, Occasion.FAILED, str(error), {}, event_log)
        message = describe_lasting_problem(str(error), EXIT_UNUSABLE, event_log, now)
        raise ConfigError(message) from None
    return config


def _decide_and_run(
    pipeline: ScheduledPipeline, config: PipelineConfig, context: CheckContext
) -> int | None:
    """Decides whether a run is due, and runs it.

    Returns:
      The exit code of the run (0 if the model was not blessed) or of a problem. None if no run is
      due and there is no problem.
    """
    layout = Layout.of(config.name, config.push, pipeline.output)
    make_root(layout)
    event_log, now = EventLog(layout.event_log), context.clock()
    decision = decide(config, layout, event_log, now)
    if isinstance(decision, Due) and context.stop.is_set():
        return EXIT_INTERRUPTED
    note_decision(config, decision, event_log, now)
    if isinstance(decision, NotDue):
        message = f"nothing to do: {decision.reason}"
        if decision.exit_code != EXIT_PUSHED:
            message = describe_lasting_problem(message, decision.exit_code, event_log, now)
        context.report(pipeline.name, message)
        return decision.exit_code or None
    context.report(pipeline.name, f"starts: {decision.reason}")
    timeout = config.schedule_or_default.timeout
    context.health.expect(
        pipeline.name, timeout.total_seconds() + SCHEDULED_RUN_GRACE_SECONDS + CHECK_SECONDS
    )
    result = _run(pipeline, layout, _run_arguments(pipeline, config, decision), timeout, context)
    code, line = settle_run(config, layout, event_log, result, context.stop.is_set())
    context.report(pipeline.name, line)
    return code


def _compare_requests(
    pipeline: ScheduledPipeline, config: PipelineConfig, context: CheckContext
) -> int:
    """Compares new requests with the training data in a child process.

    Returns:
      The exit code of the comparison if the comparison failed, otherwise 0.
    """
    layout = Layout.of(config.name, config.push, pipeline.output)
    if context.stop.is_set() or is_run_under_way(layout):
        return EXIT_PUSHED
    if not new_requests(config, EventLog(layout.event_log)):
        return EXIT_PUSHED
    arguments = ["skew", "--record", *_config_arguments(pipeline)]
    result = _run(pipeline, layout, arguments, COMPARISON_TIMEOUT, context)
    if context.stop.is_set():
        return EXIT_PUSHED
    has_failed = result.exit_code < 0 or result.timed_out is not None
    return EXIT_FAILED if has_failed else result.exit_code


def _run(
    pipeline: ScheduledPipeline,
    layout: Layout,
    arguments: Sequence[str],
    timeout: timedelta,
    context: CheckContext,
) -> ProcessResult:
    """Runs a command for a pipeline, and reports its output."""
    return run_process(
        context.runner,
        arguments,
        layout.scheduled,
        layout.scheduled_log,
        timeout,
        context.stop,
        lambda line: context.report(pipeline.name, f"  {line}"),
    )


def _config_arguments(pipeline: ScheduledPipeline) -> list[str]:
    """Returns the arguments that identify the pipeline for a command."""
    arguments = ["--config", str(pipeline.config_file)]
    for override in pipeline.overrides:
        arguments += ["--set", override]
    return [*arguments, "--output", str(pipeline.output)]


def _run_arguments(pipeline: ScheduledPipeline, config: PipelineConfig, due: Due) -> list[str]:
    """Returns the arguments of a run, after the runner's command."""
    arguments = [_RUN, *_config_arguments(pipeline), "--because", due.details["because"]]
    if due.through is not None:
        arguments += ["--through", span_kind(config.data).show(due.through)]
    if due.validate_only:
        arguments.append("--validate-only")
    if pipeline.verbose:
        arguments.append("--verbose")
    return arguments


def settle_run(
    config: PipelineConfig | None,
    layout: Layout,
    event_log: EventLog,
    result: ProcessResult,
    is_stopping: bool,
) -> tuple[int, str]:
    """Makes sure that the event log has the end of a run.

    Args:
      config: the config, for notifications, or None if it is invalid.
      is_stopping: whether a signal stopped the scheduler.

    Returns:
      The exit code of the check, and a line about the end of the run.
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
        return EXIT_INTERRUPTED, "stopped; the next scheduler resumes the run"
    elif end is None and code == EXIT_LATER:
        # Another run may have been started by hand a moment earlier. The next check tries again.
        _record_wait(config, layout, event_log, result.last_line)
        return EXIT_LATER, result.last_line
    elif end is None or history.is_unfinished:
        end = _record_exit(config, event_log, result)
    return _exit_code(end), _describe(end, event_log)


def _record_wait(
    config: PipelineConfig | None, layout: Layout, event_log: EventLog, message: str
) -> None:
    """Records once why a run did not begin; sends a notification, unless another run is the
    reason.
    """
    last = event_log.last(EventKind.SKIPPED, EventKind.STARTED)
    if last and (last.kind, last.message) == (EventKind.SKIPPED, message):
        return
    event_log.record(EventKind.SKIPPED, message)
    if config is not None and not is_run_under_way(layout):
        notify(config.notify, config.name, Occasion.FAILED, message, {"how": "waits"}, event_log)


def _record_exit(
    config: PipelineConfig | None, event_log: EventLog, result: ProcessResult
) -> LoggedEvent:
    """Records the end of a run that ended without a record."""
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
    """Records a failure that the run itself could not record, and sends a notification."""
    history = read_history(event_log)
    last = history.started if history.is_unfinished else history.end
    run = last.run if last else None
    event_log.record(EventKind.FAILED, message, run=run, exit_code=exit_code, how=how)
    if config is not None:
        notify(
            config.notify, config.name, Occasion.FAILED, message, {"how": how}, event_log, run=run
        )
    return event_log.events(EventKind.FAILED, newest=1)[0]


def _describe(end: LoggedEvent, event_log: EventLog) -> str:
    """Returns the outcome of a run in one line."""
    if end.kind is EventKind.FAILED:
        return f"failed: {end.message}"
    pushed = event_log.events(EventKind.PUSHED, run=end.run) if end.run else []
    version = f", version {pushed[-1].details['version']}" if pushed else ""
    return f"finished: {end.details['status'].replace('_', ' ')}{version}"


def _exit_code(end: LoggedEvent) -> int:
    """Returns the exit code of a run for `schedule --once`, where a missing push is no failure."""
    code = int(end.details.get("exit_code", EXIT_FAILED))
    return EXIT_PUSHED if code in (EXIT_NOT_BLESSED, EXIT_NOT_PUSHED) else code
