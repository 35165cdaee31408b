"""What makes a run due: new data, the clock, drift, skew; asked in this order."""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.sections.schedule import OnDrift
from pipeline.config.sections.skew import OnSkew
from pipeline.exit_codes import EXIT_UNUSABLE
from pipeline.records.event_log import EventKind, EventLog
from pipeline.schedule.cron import next_firings, show_time
from pipeline.schedule.decisions.inputs import DecisionInputs, Due, NotDue


def decide_by_triggers(inputs: DecisionInputs, event_log: EventLog) -> Due | NotDue:
    """Decides whether anything sets a run off."""
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
        reason = f"seen for the first time; the clock first fires at {show_time(first, settings)}"
        return NotDue(reason, inputs.clock_details())
    has_only_clock = settings.cron is not None and not settings.on_new_data
    return NotDue("the clock has not fired" if has_only_clock else "nothing new")


def _decide_without_window(inputs: DecisionInputs, problem: str) -> NotDue:
    """Says what is wrong with the data; while files are being written, a firing waits for them."""
    if inputs.snapshot.is_being_written:
        return NotDue(problem, says_nothing=True)
    not_due = inputs.not_due(problem)
    return replace(not_due, details=not_due.details or {}, exit_code=EXIT_UNUSABLE, is_problem=True)


def _decide_at_firing(inputs: DecisionInputs) -> Due | NotDue:
    """Runs if data or config are new; a firing waits for files that are still being written."""
    fired, trained = inputs.firings_in_words, inputs.history.trained
    if trained is None:
        return inputs.due(f"{fired}; no run has ended yet")
    if inputs.changes.spans:
        return inputs.due(f"{fired}; {inputs.changes}")
    if trained.details["config"] != inputs.fingerprint:
        return inputs.due(f"{fired}; the config has changed")
    if inputs.snapshot.is_being_written:
        return NotDue(f"{fired}, and waits")
    return inputs.not_due("nothing is new")


def _decide_by_drift(inputs: DecisionInputs, event_log: EventLog) -> Due | None:
    """Has a new span read and checked first, and a run follow if it has drifted."""
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
        return inputs.due(f"span {newest} is new: has it drifted?", validate_only=True)
    drifted = [
        event
        for event in event_log.events(EventKind.DRIFT)
        if event.details["span"] == newest.number and event.id > checked[0].id
    ]
    return inputs.due(f"span {newest} has drifted: {drifted[-1].message}") if drifted else None


def _decide_by_skew(inputs: DecisionInputs, event_log: EventLog) -> Due | None:
    """Has a run follow once when requests have become unlike the training data."""
    if inputs.config.skew.on_skew is not OnSkew.RETRAIN or inputs.snapshot.window is None:
        return None
    found, due = event_log.last(EventKind.SKEW), inputs.history.due
    if found is None or (due is not None and due.id > found.id):
        return None
    return inputs.due(f"requests are skewed: {found.message}")
