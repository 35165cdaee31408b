"""Whether a run of a pipeline is due, and why; decides only, and neither runs nor records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.config.fingerprint import config_fingerprint
from pipeline.config.schedule import OnDrift, ScheduleSettings
from pipeline.config.settings import PipelineConfig
from pipeline.config.span_patterns import NO_SPAN, has_spans
from pipeline.exit_codes import EXIT_INTERRUPTED, EXIT_UNUSABLE
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.schedule.cron import firings_between, next_firings, show_time
from pipeline.schedule.data_changes import DataChanges, DataSnapshot, compare, take_snapshot
from pipeline.schedule.history import History, read_history
from pipeline.schedule.process_lock import is_held

MAX_CONTINUATIONS = 10
"""A run that is interrupted so often, as by a machine without the memory for it, is given up."""
FIRST_LOOK_BACK = timedelta(hours=1)
"""A firing so shortly before a pipeline is seen for the first time counts: what calls
`schedule --once` ticks a little after the clock that it serves."""


@dataclass(frozen=True)
class Due:
    """A run is to be started now."""

    reason: str
    through: int | None = None
    """The span to end at; None where the data does not come in spans."""
    validate_only: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    """For the ledger, and for the decisions to come."""


@dataclass(frozen=True)
class NotDue:
    """Nothing is to be started now."""

    reason: str
    details: dict[str, Any] | None = None
    """For the ledger; None: nothing is worth to be recorded."""
    is_problem: bool = False
    """Whether somebody has to do something about it."""


def decide(
    config: PipelineConfig, layout: Layout, event_log: EventLog, now: datetime
) -> Due | NotDue:
    """Decides whether a run is due.

    Args:
      config: a checked config with a schedule.
      layout: of the pipeline.
      event_log: what has been decided and run before.
      now: what the clock shows, with its time zone.

    Raises:
      ConfigError: the ledger cannot be used.
    """
    if is_under_way(layout):
        return NotDue("a run is under way")
    history = read_history(event_log)
    unfinished = _go_on(history)
    if unfinished and history.continued < MAX_CONTINUATIONS:
        return unfinished
    case = _Case.of(config, layout, history, now)
    if unfinished and not (case.firings or case.has_changed):
        reason = (
            f"the run was interrupted {MAX_CONTINUATIONS} times in a row; the next waits for the "
            "clock, or for new data"
        )
        return NotDue(reason, {}, is_problem=True)
    decision = _after_failure(case) or _from_triggers(case, event_log)
    return replace(decision, reason="; ".join([decision.reason, *case.changes.notes]))


def is_under_way(layout: Layout) -> bool:
    """Whether a run of the pipeline is under way, or about to begin."""
    return is_held(layout.lock) or is_held(layout.scheduled)


@dataclass(frozen=True)
class _Case:
    """Everything that a decision rests on."""

    config: PipelineConfig
    now: datetime
    history: History
    snapshot: DataSnapshot
    changes: DataChanges
    firings: list[datetime]
    """Those that nothing has come of yet."""
    is_first_look: bool
    """Whether this clock is seen for the first time."""
    schema: str
    """A hash of the schema's file, which is edited where data was refused; empty without one."""

    @classmethod
    def of(cls, config: PipelineConfig, layout: Layout, history: History, now: datetime) -> _Case:
        settings = config.schedule_or_default
        snapshot = take_snapshot(config, layout, now)
        trained = history.trained.details["spans"] if history.trained else {}
        since = history.due.at if history.due else None
        changes = compare(snapshot, trained, since, has_spans(config.data))
        handled = history.handled_until(_clock(settings))
        after = now - FIRST_LOOK_BACK if handled is None else handled
        firings = firings_between(settings, after, now)
        schema = _content(Path(config.schema_file) if config.schema_file else layout.schema)
        return cls(config, now, history, snapshot, changes, firings, handled is None, schema)

    @property
    def settings(self) -> ScheduleSettings:
        return self.config.schedule_or_default

    @property
    def fingerprint(self) -> str:
        return config_fingerprint(self.config)

    @property
    def has_changed(self) -> bool:
        """Whether data or config are others than at the last decision to run."""
        decision = self.history.decision
        return self.snapshot.problem is None and (
            decision.get("spans") != self.snapshot.signatures
            or decision.get("config") != self.fingerprint
            or decision.get("schema") != self.schema
        )

    @property
    def fired(self) -> str:
        """Which firings are pending, in words."""
        last, missed = self.firings[-1], len(self.firings) - 1
        more = f", and {missed} missed before" if missed and not self.is_first_look else ""
        return f"the clock fired at {show_time(last, self.settings)}{more}"

    def handled(self) -> dict[str, Any]:
        """Details that settle all firings up to now."""
        if self.settings.cron is None:
            return {}
        details: dict[str, Any] = {
            "clock": _clock(self.settings),
            "handled": self.now.isoformat(),
        }
        if self.firings:
            details |= {"firing": self.firings[-1].isoformat(), "firings": len(self.firings)}
        return details

    def due(self, reason: str, attempt: int = 1, validate_only: bool = False) -> Due:
        """A decision to run on the window as it is now."""
        window = self.snapshot.window
        through = window.newest.number if window and has_spans(self.config.data) else None
        details = self.handled() | {
            "because": reason,
            "through": through,
            "validate_only": validate_only,
            "attempt": attempt,
            "spans": self.snapshot.signatures,
            "config": self.fingerprint,
            "schema": self.schema,
        }
        return Due(reason, through, validate_only, details)

    def not_due(self, reason: str) -> NotDue:
        """No run; a firing that is pending is settled by it."""
        if self.firings:
            return NotDue(f"{self.fired}: {reason}", self.handled())
        return NotDue(reason)


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


def _clock(settings: ScheduleSettings) -> str:
    return f"{settings.cron} {settings.timezone}"


def _go_on(history: History) -> Due | None:
    """What was decided once is done, whatever was killed or stopped in between."""
    due, started = history.due, history.started
    if due is not None and not history.was_started:
        return _again(due, "goes on with what was decided and did not begin")
    if history.is_unfinished and started is not None:
        if due is not None and not history.is_by_hand:
            return _again(due, "goes on with the run that was interrupted", history.continued + 1)
        newest = started.details["window"][-1]
        through = None if newest == NO_SPAN else newest
        reason = f"goes on with the run that was interrupted ({started.message})"
        details = {
            "because": started.message,
            "through": through,
            "attempt": 1,
            "continued": history.continued + 1,
        }
        return Due(reason, through, False, details)
    if due is not None and history.failure == EXIT_INTERRUPTED:
        return _again(due, "goes on with the run that was stopped", history.continued + 1)
    return None


def _again(due: LoggedEvent, reason: str, continued: int = 0, attempt: int | None = None) -> Due:
    """What was decided before, once more."""
    details = due.details | {"continued": continued} | ({"attempt": attempt} if attempt else {})
    return Due(
        f"{reason} ({details['because']})",
        details["through"],
        details.get("validate_only", False),
        details,
    )


def _after_failure(case: _Case) -> Due | NotDue | None:
    """What a failure leads to; None if it stands in the way of nothing."""
    history, retry = case.history, case.settings.retry
    if history.failure is None or history.due is None or history.end is None:
        return None
    if history.failure == EXIT_UNUSABLE:
        if case.has_changed:
            return case.due("data or config have changed since a run could not use them")
        if case.firings:
            # What stood in the way may have been no fault of either: a server that was down.
            return case.due(f"{case.fired}; the last run could not use data or config")
        return case.not_due(f"the last run could not use data or config: {history.end.message}")
    if case.settings.on_new_data and case.has_changed:
        return None
    if history.attempt < retry.attempts:
        at = history.failed_at() + retry.backoff * 2 ** (history.attempt - 1)
        if case.now >= at or history.end.details.get("how") == "killed":
            attempt = history.attempt + 1
            return _again(history.due, f"attempt {attempt} of {retry.attempts}", 0, attempt)
        when = show_time(at, case.settings)
        return NotDue(f"the last run failed; it is tried again at {when}")
    if not case.firings and not case.has_changed:
        tried = f"failed {history.attempt} times" if history.attempt > 1 else "failed"
        return NotDue(f"the last run {tried}; the next waits for the clock, or for new data")
    return None


def _from_triggers(case: _Case, event_log: EventLog) -> Due | NotDue:
    """New data, the clock, drift: in this order."""
    snapshot, settings = case.snapshot, case.settings
    if snapshot.problem is not None:
        if snapshot.is_being_written:
            return NotDue(snapshot.problem)  # A firing waits for it, too.
        problem = case.not_due(snapshot.problem)
        return replace(problem, details=problem.details or {}, is_problem=True)
    if settings.on_new_data and case.changes.fresh:
        return case.due(str(case.changes))
    if case.firings:
        return _at_firing(case)
    if due := _from_drift(case, event_log):
        return due
    if settings.cron is not None and case.is_first_look:
        first = next_firings(settings, case.now, 1)[0]
        reason = f"seen for the first time; the clock first fires at {show_time(first, settings)}"
        return NotDue(reason, case.handled())
    has_clock = settings.cron is not None and not settings.on_new_data
    return NotDue("the clock has not fired" if has_clock else "nothing new")


def _at_firing(case: _Case) -> Due | NotDue:
    """Nothing new means that nothing runs, but what is on its way is waited for."""
    if case.history.trained is None:
        return case.due(f"{case.fired}; no run has ended yet")
    if case.changes.fresh:
        return case.due(f"{case.fired}; {case.changes}")
    if case.history.trained.details["config"] != case.fingerprint:
        return case.due(f"{case.fired}; the config has changed")
    if case.snapshot.is_being_written:
        return NotDue(f"{case.fired}, and waits")
    return case.not_due("nothing is new")


def _from_drift(case: _Case, event_log: EventLog) -> Due | None:
    """A new span is read and checked first; a run follows where it has drifted."""
    drift, window = case.config.drift, case.snapshot.window
    watches = drift.on_drift is OnDrift.RETRAIN and drift.columns
    if not watches or window is None or window.newest not in case.changes.fresh:
        return None
    if case.history.trained is None:
        return case.due("no run has ended yet")
    newest = window.newest
    checked = [
        event
        for event in event_log.events(EventKind.INGESTED)
        if event.details["span"] == newest.number and event.details["signature"] == newest.signature
    ]
    if not checked:
        return case.due(f"span {newest} is new: has it drifted?", validate_only=True)
    drifted = [
        event
        for event in event_log.events(EventKind.DRIFT)
        if event.details["span"] == newest.number and event.id > checked[0].id
    ]
    return case.due(f"span {newest} has drifted: {drifted[-1].message}") if drifted else None
