"""Whether a run of a pipeline is due, and why; decides only, and neither runs nor records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.journal import config_fingerprint
from pipeline.layout import Layout
from pipeline.ledger import Event, Kind, Ledger
from pipeline.schedule.data_news import News, View, compare, look_at
from pipeline.schedule.firings import firings_between, next_firings, show_time
from pipeline.schedule.held_file import is_held
from pipeline.schedule.past import Past, read_past
from pipeline.schedule.settings import OnDrift, ScheduleSettings
from pipeline.schedule.spans import NO_SPAN, has_spans
from pipeline.summary import EXIT_INTERRUPTED, EXIT_UNUSABLE

MOST_CONTINUED = 10
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


def decide(config: PipelineConfig, layout: Layout, ledger: Ledger, now: datetime) -> Due | NotDue:
    """Decides whether a run is due.

    Args:
      config: a checked config with a schedule.
      layout: of the pipeline.
      ledger: what has been decided and run before.
      now: what the clock shows, with its time zone.

    Raises:
      ConfigError: the ledger cannot be used.
    """
    if is_under_way(layout):
        return NotDue("a run is under way")
    past = read_past(ledger)
    unfinished = _go_on(past)
    if unfinished and past.continued < MOST_CONTINUED:
        return unfinished
    case = _Case.of(config, layout, past, now)
    if unfinished and not (case.firings or case.has_changed):
        reason = (
            f"the run was interrupted {MOST_CONTINUED} times in a row; the next waits for the "
            "clock, or for new data"
        )
        return NotDue(reason, {}, is_problem=True)
    decision = _after_failure(case) or _from_triggers(case, ledger)
    return replace(decision, reason="; ".join([decision.reason, *case.news.notes]))


def is_under_way(layout: Layout) -> bool:
    """Whether a run of the pipeline is under way, or about to begin."""
    return is_held(layout.lock) or is_held(layout.scheduled)


@dataclass(frozen=True)
class _Case:
    """Everything that a decision rests on."""

    config: PipelineConfig
    now: datetime
    past: Past
    view: View
    news: News
    firings: list[datetime]
    """Those that nothing has come of yet."""
    is_first_look: bool
    """Whether this clock is seen for the first time."""
    schema: str
    """A hash of the schema's file, which is edited where data was refused; empty without one."""

    @classmethod
    def of(cls, config: PipelineConfig, layout: Layout, past: Past, now: datetime) -> _Case:
        settings = config.schedule_or_default
        view = look_at(config, layout, now)
        trained = past.trained.details["spans"] if past.trained else {}
        since = past.due.at if past.due else None
        news = compare(view, trained, since, has_spans(config.data))
        handled = past.handled_until(_clock(settings))
        after = now - FIRST_LOOK_BACK if handled is None else handled
        firings = firings_between(settings, after, now)
        schema = _content(Path(config.schema_file) if config.schema_file else layout.schema)
        return cls(config, now, past, view, news, firings, handled is None, schema)

    @property
    def settings(self) -> ScheduleSettings:
        return self.config.schedule_or_default

    @property
    def fingerprint(self) -> str:
        return config_fingerprint(self.config)

    @property
    def has_changed(self) -> bool:
        """Whether data or config are others than at the last decision to run."""
        decision = self.past.decision
        return self.view.problem is None and (
            decision.get("spans") != self.view.signatures
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
        window = self.view.window
        through = window.newest.number if window and has_spans(self.config.data) else None
        details = self.handled() | {
            "because": reason,
            "through": through,
            "validate_only": validate_only,
            "attempt": attempt,
            "spans": self.view.signatures,
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


def _go_on(past: Past) -> Due | None:
    """What was decided once is done, whatever was killed or stopped in between."""
    due, started = past.due, past.started
    if due is not None and not past.was_started:
        return _again(due, "goes on with what was decided and did not begin")
    if past.is_unfinished and started is not None:
        if due is not None and not past.is_by_hand:
            return _again(due, "goes on with the run that was interrupted", past.continued + 1)
        newest = started.details["window"][-1]
        through = None if newest == NO_SPAN else newest
        reason = f"goes on with the run that was interrupted ({started.message})"
        details = {
            "because": started.message,
            "through": through,
            "attempt": 1,
            "continued": past.continued + 1,
        }
        return Due(reason, through, False, details)
    if due is not None and past.failure == EXIT_INTERRUPTED:
        return _again(due, "goes on with the run that was stopped", past.continued + 1)
    return None


def _again(due: Event, reason: str, continued: int = 0, attempt: int | None = None) -> Due:
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
    past, retry = case.past, case.settings.retry
    if past.failure is None or past.due is None or past.end is None:
        return None
    if past.failure == EXIT_UNUSABLE:
        if case.has_changed:
            return case.due("data or config have changed since a run could not use them")
        if case.firings:
            # What stood in the way may have been no fault of either: a server that was down.
            return case.due(f"{case.fired}; the last run could not use data or config")
        return case.not_due(f"the last run could not use data or config: {past.end.message}")
    if case.settings.on_new_data and case.has_changed:
        return None
    if past.attempt < retry.attempts:
        at = past.failed_at() + retry.backoff * 2 ** (past.attempt - 1)
        if case.now >= at or past.end.details.get("how") == "killed":
            attempt = past.attempt + 1
            return _again(past.due, f"attempt {attempt} of {retry.attempts}", 0, attempt)
        when = show_time(at, case.settings)
        return NotDue(f"the last run failed; it is tried again at {when}")
    if not case.firings and not case.has_changed:
        tried = f"failed {past.attempt} times" if past.attempt > 1 else "failed"
        return NotDue(f"the last run {tried}; the next waits for the clock, or for new data")
    return None


def _from_triggers(case: _Case, ledger: Ledger) -> Due | NotDue:
    """New data, the clock, drift: in this order."""
    view, settings = case.view, case.settings
    if view.problem is not None:
        if view.is_being_written:
            return NotDue(view.problem)  # A firing waits for it, too.
        problem = case.not_due(view.problem)
        return replace(problem, details=problem.details or {}, is_problem=True)
    if settings.on_new_data and case.news.fresh:
        return case.due(str(case.news))
    if case.firings:
        return _at_firing(case)
    if due := _from_drift(case, ledger):
        return due
    if settings.cron is not None and case.is_first_look:
        first = next_firings(settings, case.now, 1)[0]
        reason = f"seen for the first time; the clock first fires at {show_time(first, settings)}"
        return NotDue(reason, case.handled())
    has_clock = settings.cron is not None and not settings.on_new_data
    return NotDue("the clock has not fired" if has_clock else "nothing new")


def _at_firing(case: _Case) -> Due | NotDue:
    """Nothing new means that nothing runs, but what is on its way is waited for."""
    if case.past.trained is None:
        return case.due(f"{case.fired}; no run has ended yet")
    if case.news.fresh:
        return case.due(f"{case.fired}; {case.news}")
    if case.past.trained.details["config"] != case.fingerprint:
        return case.due(f"{case.fired}; the config has changed")
    if case.view.is_being_written:
        return NotDue(f"{case.fired}, and waits")
    return case.not_due("nothing is new")


def _from_drift(case: _Case, ledger: Ledger) -> Due | None:
    """A new span is read and checked first; a run follows where it has drifted."""
    drift, window = case.config.drift, case.view.window
    watches = drift.on_drift is OnDrift.RETRAIN and drift.columns
    if not watches or window is None or window.newest not in case.news.fresh:
        return None
    if case.past.trained is None:
        return case.due("no run has ended yet")
    newest = window.newest
    checked = [
        event
        for event in ledger.events(Kind.INGESTED)
        if event.details["span"] == newest.number and event.details["signature"] == newest.signature
    ]
    if not checked:
        return case.due(f"span {newest} is new: has it drifted?", validate_only=True)
    drifted = [
        event
        for event in ledger.events(Kind.DRIFT)
        if event.details["span"] == newest.number and event.id > checked[0].id
    ]
    return case.due(f"span {newest} has drifted: {drifted[-1].message}") if drifted else None
