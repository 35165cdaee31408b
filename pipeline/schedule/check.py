"""One look at a pipeline: decides, writes the decision down, and runs what is due."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline.config.loading import load_config
from pipeline.config.schedule import ScheduleSettings, show_duration
from pipeline.config.schedule_rules import TRIGGERS, has_trigger
from pipeline.config.settings import Occasion, PipelineConfig
from pipeline.config.span_patterns import is_dated, show_span
from pipeline.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_BLESSED,
    EXIT_PUSHED,
    EXIT_UNUSABLE,
)
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import notify
from pipeline.schedule.decision import Due, NotDue, decide, is_under_way
from pipeline.schedule.history import read_history
from pipeline.schedule.run_process import Outcome, run_process
from trainer_module.errors import ConfigError, ScopelineError

MAX_RUNS_PER_CHECK = 5
"""Runs of one look: one that goes on, one that checks a new span for drift, one that trains."""


@dataclass(frozen=True)
class ScheduledPipeline:
    """A pipeline that a scheduler looks after."""

    name: str
    config: Path
    overrides: tuple[str, ...]
    output: Path
    verbose: bool = False
    """Whether its runs show everything that components say."""

    @classmethod
    def of(
        cls, config: Path, overrides: Sequence[str], output: Path, verbose: bool = False
    ) -> ScheduledPipeline:
        """Reads the config for its name.

        Raises:
          ConfigError: the config is bad or has no schedule.
        """
        loaded = load_scheduled(config, overrides)
        return cls(loaded.name, config.absolute(), tuple(overrides), output.resolve(), verbose)


@dataclass(frozen=True)
class CheckContext:
    """What a look works with."""

    runner: tuple[str, ...]
    """The command that `run` and its options are added to."""
    clock: Callable[[], datetime]
    stop: threading.Event
    say: Callable[[str, str], None]
    """Gets a pipeline's name and a line about it."""


def load_scheduled(path: Path, overrides: Sequence[str]) -> PipelineConfig:
    """Loads a config that has a schedule.

    Raises:
      ConfigError: it is bad, or has none.
    """
    config = load_config(path, overrides)
    if config.schedule is None or not has_trigger(config):
        raise ConfigError(f"{path}: schedule: nothing ever sets it off; {TRIGGERS}")
    return config


def check_pipeline(
    scheduled: ScheduledPipeline, context: CheckContext
) -> tuple[int, ScheduleSettings | None]:
    """Decides, and runs what is due.

    Returns:
      The worst exit code that counts, 0, 1 or 2 (130: it was stopped), and the schedule as the
      config has it now, None if the config cannot be used.
    """
    settings, worst = None, EXIT_PUSHED
    try:
        for _ in range(MAX_RUNS_PER_CHECK):
            config = _load(scheduled, context.clock())
            settings = config.schedule
            code = _decide_and_run(scheduled, config, context)
            if code is None:
                break
            worst = max(worst, code)
            if code != EXIT_PUSHED:
                break
    except ScopelineError as error:
        context.say(scheduled.name, str(error))
        worst = max(worst, EXIT_UNUSABLE)
    except OSError as error:
        context.say(
            scheduled.name, f"{error.filename or scheduled.output}: {error.strerror or error}"
        )
        worst = max(worst, EXIT_FAILED)
    return worst, settings


def _load(scheduled: ScheduledPipeline, now: datetime) -> PipelineConfig:
    """The config as it is now; one that became bad is written down.

    Raises:
      ConfigError: it cannot be used.
    """
    try:
        config = load_scheduled(scheduled.config, scheduled.overrides)
        if config.name != scheduled.name:
            raise ConfigError(
                f"{scheduled.config}: `name` was {scheduled.name!r} and is {config.name!r} now; "
                "start the scheduler anew"
            )
    except ConfigError as error:
        layout = Layout(scheduled.output, scheduled.name)
        _make_folder(layout)
        record_decision(NotDue(str(error), {}), EventLog(layout.event_log), now)
        raise
    return config


def _decide_and_run(
    scheduled: ScheduledPipeline, config: PipelineConfig, context: CheckContext
) -> int | None:
    """The exit code of a run, 0 where a model was merely not blessed; None if none was due."""
    layout = Layout.of(config, scheduled.output)
    _make_folder(layout)
    event_log, now = EventLog(layout.event_log), context.clock()
    decision = decide(config, layout, event_log, now)
    if isinstance(decision, Due) and context.stop.is_set():
        return EXIT_INTERRUPTED
    is_news = record_decision(decision, event_log, now)
    if isinstance(decision, NotDue):
        if is_news and decision.is_problem:
            notify(config, Occasion.FAILED, decision.reason, {}, event_log)
        context.say(scheduled.name, f"nothing to do: {decision.reason}")
        return None
    context.say(scheduled.name, f"starts: {decision.reason}")
    command = [*context.runner, *_arguments(scheduled, config, decision)]
    timeout = config.schedule_or_default.timeout
    outcome = run_process(
        command,
        layout.scheduled,
        layout.scheduled_log,
        timeout,
        context.stop,
        lambda line: context.say(scheduled.name, f"  {line}"),
    )
    return _conclude(scheduled, config, context, outcome)


def _make_folder(layout: Layout) -> None:
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{layout.root}: cannot write the output here ({error.strerror or error}); "
            "give a folder that you may write with --output"
        ) from None


def record_decision(decision: Due | NotDue, event_log: EventLog, now: datetime) -> bool:
    """Records a decision; why nothing runs only if it does not stand there already.

    Returns:
      Whether it was recorded.
    """
    if isinstance(decision, Due):
        event_log.record(EventKind.DUE, decision.reason, at=now, **decision.details)
        return True
    if decision.details is not None:
        last = event_log.last(EventKind.DUE, EventKind.SKIPPED)
        if last is None or (last.kind, last.message) != (EventKind.SKIPPED, decision.reason):
            event_log.record(EventKind.SKIPPED, decision.reason, at=now, **decision.details)
            return True
    return False


def _arguments(scheduled: ScheduledPipeline, config: PipelineConfig, due: Due) -> list[str]:
    """The command line of a run, after the runner."""
    arguments = ["run", "--config", str(scheduled.config)]
    for override in scheduled.overrides:
        arguments += ["--set", override]
    arguments += ["--output", str(scheduled.output), "--because", due.details["because"]]
    if due.through is not None:
        arguments += ["--through", show_span(due.through, is_dated(config.data))]
    if due.validate_only:
        arguments.append("--validate-only")
    if scheduled.verbose:
        arguments.append("--verbose")
    return arguments


def _conclude(
    scheduled: ScheduledPipeline, config: PipelineConfig, context: CheckContext, outcome: Outcome
) -> int:
    """Sees to it that the ledger has the run's end, and says it."""
    layout = Layout.of(config, scheduled.output)
    event_log = EventLog(layout.event_log)
    history = read_history(event_log)
    end, code = history.end, outcome.exit_code
    ended_well = end is not None and end.kind is EventKind.FINISHED
    if outcome.timed_out and not ended_well:
        limit = show_duration(config.schedule_or_default.timeout)
        message = f"ran longer than {limit}, and was stopped"
        end = _record_failure(config, event_log, message, "timed out")
    elif context.stop.is_set() and not ended_well and code != -signal.SIGKILL:
        context.say(scheduled.name, "stopped; the next scheduler goes on with it")
        return EXIT_INTERRUPTED
    elif end is None and code == EXIT_UNUSABLE and is_under_way(layout):
        context.say(scheduled.name, outcome.last_line)
        return EXIT_PUSHED
    elif end is None or (history.is_unfinished and not ended_well):
        killed = f"was killed by signal {-code}" if code < 0 else ""
        message = killed or outcome.last_line or f"exit code {code}"
        how = "killed" if killed else "ended"
        end = _record_failure(config, event_log, message, how, code if code > 0 else EXIT_FAILED)
    context.say(scheduled.name, _outcome(event_log, end))
    return _counts(end)


def _record_failure(
    config: PipelineConfig,
    event_log: EventLog,
    message: str,
    how: str,
    exit_code: int = EXIT_FAILED,
) -> LoggedEvent:
    """Writes down the end of a run that could not do so itself, and tells of it."""
    history = read_history(event_log)
    begun = history.started if history.is_unfinished else history.end
    run = begun.run if begun else None
    event_log.record(EventKind.FAILED, message, run=run, exit_code=exit_code, how=how)
    notify(config, Occasion.FAILED, message, {"how": how}, event_log, run=run)
    return event_log.events(EventKind.FAILED, newest=1)[0]


def _outcome(event_log: EventLog, end: LoggedEvent) -> str:
    """How a run ended, in one line."""
    if end.kind is EventKind.FAILED:
        return f"failed: {end.message}"
    pushed = event_log.events(EventKind.PUSHED, run=end.run) if end.run else []
    version = f", version {pushed[-1].details['version']}" if pushed else ""
    return f"finished: {end.details['status'].replace('_', ' ')}{version}"


def _counts(end: LoggedEvent) -> int:
    """The exit code of a run for `schedule --once`, to which a model not blessed is no failure."""
    code = int(end.details.get("exit_code", EXIT_FAILED))
    return EXIT_PUSHED if code == EXIT_NOT_BLESSED else code
