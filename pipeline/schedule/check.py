"""One look at a pipeline: decides, writes the decision down, and runs what is due."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline.config import Occasion, PipelineConfig
from pipeline.config_file import load_config
from pipeline.layout import Layout
from pipeline.ledger import Event, Kind, Ledger
from pipeline.notify import notify
from pipeline.schedule.child import Outcome, run_child
from pipeline.schedule.decision import Due, NotDue, decide, is_under_way
from pipeline.schedule.past import read_past
from pipeline.schedule.rules import OCCASIONS, has_occasion
from pipeline.schedule.settings import ScheduleSettings, show_duration
from pipeline.schedule.spans import is_dated, show_span
from pipeline.summary import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_BLESSED,
    EXIT_PUSHED,
    EXIT_UNUSABLE,
)
from trainer_module.errors import ConfigError, ScopelineError

MOST_IN_A_ROW = 5
"""Runs of one look: one that goes on, one that checks a new span for drift, one that trains."""


@dataclass(frozen=True)
class Watched:
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
    ) -> Watched:
        """Reads the config for its name.

        Raises:
          ConfigError: the config is bad or has no schedule.
        """
        loaded = load_scheduled(config, overrides)
        return cls(loaded.name, config.absolute(), tuple(overrides), output.resolve(), verbose)


@dataclass(frozen=True)
class Surroundings:
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
    if config.schedule is None or not has_occasion(config):
        raise ConfigError(f"{path}: schedule: nothing ever sets it off; {OCCASIONS}")
    return config


def check(watched: Watched, around: Surroundings) -> tuple[int, ScheduleSettings | None]:
    """Decides, and runs what is due.

    Returns:
      The worst exit code that counts, 0, 1 or 2 (130: it was stopped), and the schedule as the
      config has it now, None if the config cannot be used.
    """
    settings, worst = None, EXIT_PUSHED
    try:
        for _ in range(MOST_IN_A_ROW):
            config = _load(watched, around.clock())
            settings = config.schedule
            code = _decide_and_run(watched, config, around)
            if code is None:
                break
            worst = max(worst, code)
            if code != EXIT_PUSHED:
                break
    except ScopelineError as error:
        around.say(watched.name, str(error))
        worst = max(worst, EXIT_UNUSABLE)
    except OSError as error:
        around.say(watched.name, f"{error.filename or watched.output}: {error.strerror or error}")
        worst = max(worst, EXIT_FAILED)
    return worst, settings


def _load(watched: Watched, now: datetime) -> PipelineConfig:
    """The config as it is now; one that became bad is written down.

    Raises:
      ConfigError: it cannot be used.
    """
    try:
        config = load_scheduled(watched.config, watched.overrides)
        if config.name != watched.name:
            raise ConfigError(
                f"{watched.config}: `name` was {watched.name!r} and is {config.name!r} now; "
                "start the scheduler anew"
            )
    except ConfigError as error:
        layout = Layout(watched.output, watched.name)
        _make_folder(layout)
        write_down(NotDue(str(error), {}), Ledger(layout.ledger), now)
        raise
    return config


def _decide_and_run(watched: Watched, config: PipelineConfig, around: Surroundings) -> int | None:
    """The exit code of a run, 0 where a model was merely not blessed; None if none was due."""
    layout = Layout.of(config, watched.output)
    _make_folder(layout)
    ledger, now = Ledger(layout.ledger), around.clock()
    decision = decide(config, layout, ledger, now)
    if isinstance(decision, Due) and around.stop.is_set():
        return EXIT_INTERRUPTED
    is_news = write_down(decision, ledger, now)
    if isinstance(decision, NotDue):
        if is_news and decision.is_problem:
            notify(config, Occasion.FAILED, decision.reason, {}, ledger)
        around.say(watched.name, f"nothing to do: {decision.reason}")
        return None
    around.say(watched.name, f"starts: {decision.reason}")
    command = [*around.runner, *_arguments(watched, config, decision)]
    timeout = config.schedule_or_default.timeout
    outcome = run_child(
        command,
        layout.scheduled,
        layout.scheduled_log,
        timeout,
        around.stop,
        lambda line: around.say(watched.name, f"  {line}"),
    )
    return _conclude(watched, config, around, outcome)


def _make_folder(layout: Layout) -> None:
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{layout.root}: cannot write the output here ({error.strerror or error}); "
            "give a folder that you may write with --output"
        ) from None


def write_down(decision: Due | NotDue, ledger: Ledger, now: datetime) -> bool:
    """Records a decision; why nothing runs only if it does not stand there already.

    Returns:
      Whether it was recorded.
    """
    if isinstance(decision, Due):
        ledger.record(Kind.DUE, decision.reason, at=now, **decision.details)
        return True
    if decision.details is not None:
        last = ledger.last(Kind.DUE, Kind.SKIPPED)
        if last is None or (last.kind, last.message) != (Kind.SKIPPED, decision.reason):
            ledger.record(Kind.SKIPPED, decision.reason, at=now, **decision.details)
            return True
    return False


def _arguments(watched: Watched, config: PipelineConfig, due: Due) -> list[str]:
    """The command line of a run, after the runner."""
    arguments = ["run", "--config", str(watched.config)]
    for override in watched.overrides:
        arguments += ["--set", override]
    arguments += ["--output", str(watched.output), "--because", due.details["because"]]
    if due.through is not None:
        arguments += ["--through", show_span(due.through, is_dated(config.data))]
    if due.validate_only:
        arguments.append("--validate-only")
    if watched.verbose:
        arguments.append("--verbose")
    return arguments


def _conclude(
    watched: Watched, config: PipelineConfig, around: Surroundings, outcome: Outcome
) -> int:
    """Sees to it that the ledger has the run's end, and says it."""
    layout = Layout.of(config, watched.output)
    ledger = Ledger(layout.ledger)
    past = read_past(ledger)
    end, code = past.end, outcome.exit_code
    ended_well = end is not None and end.kind is Kind.FINISHED
    if outcome.timed_out and not ended_well:
        limit = show_duration(config.schedule_or_default.timeout)
        message = f"ran longer than {limit}, and was stopped"
        end = _record_failure(config, ledger, message, "timed out")
    elif around.stop.is_set() and not ended_well and code != -signal.SIGKILL:
        around.say(watched.name, "stopped; the next scheduler goes on with it")
        return EXIT_INTERRUPTED
    elif end is None and code == EXIT_UNUSABLE and is_under_way(layout):
        around.say(watched.name, outcome.last_line)
        return EXIT_PUSHED
    elif end is None or (past.is_unfinished and not ended_well):
        killed = f"was killed by signal {-code}" if code < 0 else ""
        message = killed or outcome.last_line or f"exit code {code}"
        how = "killed" if killed else "ended"
        end = _record_failure(config, ledger, message, how, code if code > 0 else EXIT_FAILED)
    around.say(watched.name, _outcome(ledger, end))
    return _counts(end)


def _record_failure(
    config: PipelineConfig, ledger: Ledger, message: str, how: str, exit_code: int = EXIT_FAILED
) -> Event:
    """Writes down the end of a run that could not do so itself, and tells of it."""
    past = read_past(ledger)
    begun = past.started if past.is_unfinished else past.end
    run = begun.run if begun else None
    ledger.record(Kind.FAILED, message, run=run, exit_code=exit_code, how=how)
    notify(config, Occasion.FAILED, message, {"how": how}, ledger, run=run)
    return ledger.events(Kind.FAILED, newest=1)[0]


def _outcome(ledger: Ledger, end: Event) -> str:
    """How a run ended, in one line."""
    if end.kind is Kind.FAILED:
        return f"failed: {end.message}"
    pushed = ledger.events(Kind.PUSHED, run=end.run) if end.run else []
    version = f", version {pushed[-1].details['version']}" if pushed else ""
    return f"finished: {end.details['status'].replace('_', ' ')}{version}"


def _counts(end: Event) -> int:
    """The exit code of a run for `schedule --once`, to which a model not blessed is no failure."""
    code = int(end.details.get("exit_code", EXIT_FAILED))
    return EXIT_PUSHED if code == EXIT_NOT_BLESSED else code
