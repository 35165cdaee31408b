"""Decides whether a run of a pipeline is due. This module starts and records nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.clock import is_future
from pipeline.config.sections.data import NO_SPAN, has_spans
from pipeline.config.sections.schedule import OnDrift, OnSkew, ScheduleSettings
from pipeline.config.settings import PipelineConfig
from pipeline.data.spans import Span
from pipeline.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PUSHED, EXIT_UNUSABLE
from pipeline.layout import Layout
from pipeline.lock import is_held
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.schedule.cron import firings_between, next_firings, show_time
from pipeline.schedule.data_changes import (
    DataChanges,
    DataSnapshot,
    compare_with_trained,
    take_snapshot,
)
from pipeline.schedule.history import History, read_history
from pipeline.versions.hold import read_hold
from trainer_module.errors import counted

MAX_CONTINUATIONS = 10
"""The number of interruptions in a row, for example by a lack of memory, after which a run is not
resumed.
"""
FIRST_CHECK_LOOKS_BACK = timedelta(hours=1)
"""The maximum age of a firing that counts at the first check of a pipeline. The system's own timer
may call `schedule --once` a little after the firing.
"""


def decide(
    config: PipelineConfig, layout: Layout, event_log: EventLog, now: datetime
) -> Due | NotDue:
    """Returns the decision whether a run is due.

    Args:
      config: a checked config with a schedule.
      event_log: the event log, with earlier decisions and runs.
      now: the current time, with its time zone.

    Raises:
      ConfigError: the event log cannot be used.
    """
    if is_run_under_way(layout):
        return NotDue("a run is under way", is_unchecked=True)
    history = read_history(event_log)
    hold = read_hold(layout, now)
    if hold is not None and hold.stops_runs:
        return NotDue(str(hold), {}, _code_under_hold(history), is_unchecked=True)
    continuation = continue_interrupted(history)
    if continuation and history.continuations < MAX_CONTINUATIONS:
        return continuation
    inputs = DecisionInputs.read(config, layout, history, now)
    if continuation and not (inputs.firings or inputs.has_changed):
        reason = (
            f"the run was interrupted {MAX_CONTINUATIONS} times in a row; the next run waits "
            "for cron or new data"
        )
        return NotDue(reason, {}, EXIT_FAILED, is_problem=True)
    decision = decide_after_failure(inputs) or decide_by_triggers(inputs, event_log)
    reason = "; ".join([decision.reason, *inputs.changes.notes])
    empty = inputs.snapshot.window.empty if inputs.snapshot.window else ()
    left_out = inputs.snapshot.left_out
    decision = replace(decision, reason=reason, left_out=left_out, empty_spans=empty)
    if isinstance(decision, NotDue) and decision.exit_code == EXIT_PUSHED and history.failure_code:
        # The check reports the failure of the last run until a run starts.
        is_stopped = history.failure_code == EXIT_INTERRUPTED
        decision = replace(decision, exit_code=EXIT_FAILED if is_stopped else history.failure_code)
    return decision


def _code_under_hold(history: History) -> int:
    """Returns the exit code under a hold, which does not end an earlier problem."""
    if history.problem is not None:
        return int(history.problem.details["exit_code"])
    # A stopped run resumes after the hold.
    return EXIT_PUSHED if continue_interrupted(history) else history.failure_code or EXIT_PUSHED


def is_run_under_way(layout: Layout) -> bool:
    """Returns whether a run of the pipeline is in progress, or about to begin."""
    return is_held(layout.lock) or is_held(layout.scheduled)


@dataclass(frozen=True)
class Due:
    """A decision to start a run now."""

    reason: str
    through: int | None = None
    """The last span to train on, or None for data without spans."""
    validate_only: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    """The details for the event log, which later decisions read."""
    left_out: tuple[str, ...] = ()
    """Sentences about spans that are left out until a user acts."""
    empty_spans: tuple[Span, ...] = ()
    """The spans without rows, which the run leaves out."""


@dataclass(frozen=True)
class NotDue:
    """A decision to start nothing now."""

    reason: str
    details: dict[str, Any] | None = None
    """The details for the event log, or None if the decision is not recorded."""
    exit_code: int = EXIT_PUSHED
    """The exit code of the check: not 0 while there is a problem."""
    is_problem: bool = False
    """Whether the decision sends a notification; False if the failed run has sent one."""
    is_unchecked: bool = False
    """Whether the data was not checked; earlier problems then count as unsolved."""
    left_out: tuple[str, ...] = ()
    """Sentences about spans that are left out until a user acts."""
    empty_spans: tuple[Span, ...] = ()
    """The spans without rows, for which the run waits."""


@dataclass(frozen=True)
class DecisionInputs:
    """The inputs of a decision, read once."""

    config: PipelineConfig
    now: datetime
    history: History
    snapshot: DataSnapshot
    changes: DataChanges
    firings: list[datetime]
    """The firings that no decision has handled yet."""
    is_first_check: bool
    """Whether no earlier decision had this cron expression and time zone."""
    schema_hash: str
    """A hash of the schema file, or an empty string without a file.

    Users edit the schema after data was refused.
    """

    @classmethod
    def read(
        cls, config: PipelineConfig, layout: Layout, history: History, now: datetime
    ) -> DecisionInputs:
        """Reads the current data and schema."""
        settings = config.schedule_or_default
        snapshot = take_snapshot(config, layout, now)
        trained = history.trained.details["spans"] if history.trained else {}
        decided_at = history.due.at if history.due else None
        accepted = {event.details["span"] for event in history.accepted}
        in_spans = has_spans(config.data)
        changes = compare_with_trained(snapshot, trained, decided_at, in_spans, accepted)
        handled = history.firings_handled_until(_clock_id(settings), now)
        after = now - FIRST_CHECK_LOOKS_BACK if handled is None else handled
        firings = firings_between(settings, after, now)
        schema_file = Path(config.schema_file) if config.schema_file else layout.schema
        schema_hash = _hash_file(schema_file)
        return cls(config, now, history, snapshot, changes, firings, handled is None, schema_hash)

    @property
    def settings(self) -> ScheduleSettings:
        """The schedule of the config, or its default."""
        return self.config.schedule_or_default

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the config."""
        return self.config.fingerprint

    @property
    def has_changed(self) -> bool:
        """Whether data, config or schema have changed since the last decision to run.

        An accepted span counts as a change.
        """
        decided = self.history.decision
        return self.snapshot.problem is None and (
            decided.get("spans") != self.snapshot.signatures
            or decided.get("config") != self.fingerprint
            or decided.get("schema") != self.schema_hash
            or bool(self.history.accepted)
        )

    @property
    def firings_text(self) -> str:
        """The firings as text: `cron fired at 2026-01-05 03:00 UTC, after 2 missed firings`."""
        last, missed = self.firings[-1], len(self.firings) - 1
        more = ""
        if missed and not self.is_first_check:
            more = f", after {counted(missed, 'missed firing')}"
        return f"cron fired at {show_time(last, self.settings)}{more}"

    def clock_details(self) -> dict[str, Any]:
        """Returns details that mark all firings up to now as handled."""
        if self.settings.cron is None:
            return {}
        details: dict[str, Any] = {
            "clock": _clock_id(self.settings),
            "handled": self.now.isoformat(),
        }
        if self.firings:
            details |= {"firing": self.firings[-1].isoformat(), "firings": len(self.firings)}
        return details

    def due(self, reason: str, validate_only: bool = False) -> Due:
        """Returns a decision to run on the current window."""
        window = self.snapshot.window
        through = window.newest.number if window and has_spans(self.config.data) else None
        details = self.clock_details() | {
            "because": reason,
            "through": through,
            "validate_only": validate_only,
            "attempt": 1,
            "spans": self.snapshot.signatures,
            "config": self.fingerprint,
            "schema": self.schema_hash,
        }
        return Due(reason, through, validate_only, details)

    def not_due(self, reason: str) -> NotDue:
        """Returns a decision against a run, which marks open firings as handled."""
        if self.firings:
            return NotDue(f"{self.firings_text}: {reason}", self.clock_details())
        return NotDue(reason)


def _clock_id(settings: ScheduleSettings) -> str:
    return f"{settings.cron} {settings.timezone}"


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


def decide_by_triggers(inputs: DecisionInputs, event_log: EventLog) -> Due | NotDue:
    """Returns the decision by the triggers: new data, cron, drift and skew."""
    if inputs.snapshot.problem is not None:
        return _decide_without_window(inputs, inputs.snapshot.problem)
    settings = inputs.settings
    if settings.on_new_data and inputs.changes.spans:
        return inputs.due(str(inputs.changes))
    if inputs.firings:
        return _decide_at_firing(inputs)
    if due := _decide_by_drift(inputs, event_log) or _decide_by_skew(inputs, event_log):
        return due
    if settings.cron is not None and inputs.is_first_check:
        first = next_firings(settings, inputs.now, 1)[0]
        reason = f"first check; cron first fires at {show_time(first, settings)}"
        return NotDue(reason, inputs.clock_details())
    has_only_clock = settings.cron is not None and not settings.on_new_data
    return NotDue("cron has not fired" if has_only_clock else "nothing new")


def _decide_without_window(inputs: DecisionInputs, problem: str) -> NotDue:
    """Returns the decision for unusable data; a firing waits while files are being written."""
    if inputs.snapshot.is_being_written:
        return NotDue(problem, is_unchecked=True)
    not_due = inputs.not_due(problem)
    return replace(not_due, details=not_due.details or {}, exit_code=EXIT_UNUSABLE, is_problem=True)


def _decide_at_firing(inputs: DecisionInputs) -> Due | NotDue:
    """Returns the decision at a firing: a run if data or config are new and files are complete."""
    fired, trained = inputs.firings_text, inputs.history.trained
    if trained is None:
        return inputs.due(f"{fired}; no run has ended yet")
    if inputs.changes.spans:
        return inputs.due(f"{fired}; {inputs.changes}")
    if trained.details["config"] != inputs.fingerprint:
        return inputs.due(f"{fired}; the config has changed")
    if inputs.snapshot.is_being_written:
        return NotDue(f"{fired}; the run waits until the files are complete")
    return inputs.not_due("nothing is new")


def _decide_by_drift(inputs: DecisionInputs, event_log: EventLog) -> Due | None:
    """Returns a decision to check a new span for drift first, and to train if it has drifted."""
    drift, window = inputs.config.drift, inputs.snapshot.window
    is_watched = drift.on_drift is OnDrift.RETRAIN and drift.columns
    if not is_watched or window is None or window.newest not in inputs.changes.spans:
        return None
    if inputs.history.trained is None:
        return inputs.due("no run has ended yet")
    newest = window.newest
    checked = [
        event
        for event in event_log.events(EventKind.INGESTED)
        if event.details["span"] == newest.number and event.details["signature"] == newest.signature
    ]
    if not checked:
        return inputs.due(f"span {newest} is new, and is checked for drift", validate_only=True)
    drifted = [
        event
        for event in event_log.events(EventKind.DRIFT)
        if event.details["span"] == newest.number and event.id > checked[0].id
    ]
    return inputs.due(f"span {newest} has drifted: {drifted[-1].message}") if drifted else None


def _decide_by_skew(inputs: DecisionInputs, event_log: EventLog) -> Due | None:
    """Returns a decision to train once after requests have become skewed."""
    if inputs.config.skew.on_skew is not OnSkew.RETRAIN or inputs.snapshot.window is None:
        return None
    skew, due = event_log.last(EventKind.SKEW), inputs.history.due
    if skew is None or (due is not None and due.id > skew.id):
        return None
    return inputs.due(f"requests are skewed: {skew.message}")


def continue_interrupted(history: History) -> Due | None:
    """Returns a decision to resume the last run if it did not begin, was killed or was stopped."""
    due, started = history.due, history.started
    if due is not None and not history.was_started:
        return _repeat(due, "starts the run that was due but did not begin")
    continuations = history.continuations + 1
    if history.is_unfinished and started is not None:
        if due is None or history.is_by_hand:
            return _continue_run_by_hand(started, continuations)
        return _repeat(due, "resumes the interrupted run", continuations)
    if due is not None and history.failure_code == EXIT_INTERRUPTED:
        return _repeat(due, "resumes the stopped run", continuations)
    return None


def decide_after_failure(inputs: DecisionInputs) -> Due | NotDue | None:
    """Returns the decision whether a failed run is retried.

    Returns:
      None if there was no failure, or there is a new reason to run.
    """
    history, retry = inputs.history, inputs.settings.retry
    if history.failure_code is None or history.due is None or history.end is None:
        return None
    if history.failure_code == EXIT_UNUSABLE:
        return _decide_after_unusable(inputs, history.end.message)
    if inputs.settings.on_new_data and inputs.has_changed:
        return None
    if history.attempt < retry.attempts:
        retry_at = history.failed_at + retry.backoff * 2 ** (history.attempt - 1)
        # A failure with a time in the future, after a clock was set back, is retried immediately.
        is_time = inputs.now >= retry_at or is_future(history.failed_at, inputs.now)
        if is_time or history.end.details.get("how") == "killed":
            attempt = history.attempt + 1
            reason = f"attempt {attempt} of {retry.attempts}"
            return _repeat(history.due, reason, attempt=attempt)
        retry_time = show_time(retry_at, inputs.settings)
        return NotDue(f"the last run failed; the run is retried at {retry_time}")
    if inputs.firings or inputs.has_changed:
        return None
    outcome = f"failed {history.attempt} times" if history.attempt > 1 else "failed"
    return NotDue(f"the last run {outcome}; the next run waits for cron or new data")


def _decide_after_unusable(inputs: DecisionInputs, message: str) -> Due | NotDue:
    """Returns a decision to retry if data, config or schema have changed, or cron has fired."""
    if inputs.has_changed:
        return inputs.due(
            "data or config have changed since the last run, which could not use them"
        )
    if inputs.firings:
        # The cause may have been a server that was down, not data or config.
        return inputs.due(f"{inputs.firings_text}; the last run could not use data or config")
    return inputs.not_due(f"the last run could not use data or config: {message}")


def _repeat(
    decided: LoggedEvent, reason: str, continuations: int = 0, attempt: int | None = None
) -> Due:
    """Returns an earlier decision again, with its window.

    Args:
      decided: the earlier decision.
      continuations: the number of interruptions in a row.
      attempt: the number of the attempt; default: that of the earlier decision.
    """
    details = decided.details | {"continued": continuations}
    if attempt is not None:
        details["attempt"] = attempt
    return Due(
        f"{reason} ({details['because']})",
        details["through"],
        details.get("validate_only", False),
        details,
    )


def _continue_run_by_hand(started: LoggedEvent, continuations: int) -> Due:
    """Returns a decision to resume a run that was started by hand, up to its newest span."""
    newest = started.details["window"][-1]
    through = None if newest == NO_SPAN else newest
    reason = f"resumes the interrupted run ({started.message})"
    details = {
        "because": started.message,
        "through": through,
        "attempt": 1,
        "continued": continuations,
    }
    return Due(reason, through, False, details)
