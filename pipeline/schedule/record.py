"""Records the decision of a check, and sends each notification once."""

from __future__ import annotations

from datetime import datetime

from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import EXIT_PUSHED
from pipeline.records.data_records import report_empty_spans
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import notify
from pipeline.schedule.decision import Due, NotDue
from pipeline.schedule.history import ENDS, read_history


def note_decision(
    config: PipelineConfig, decision: Due | NotDue, event_log: EventLog, now: datetime
) -> None:
    """Records a decision, and sends the notifications about it."""
    _note_recovery(decision, event_log, now)
    before = event_log.last(EventKind.DUE, EventKind.SKIPPED)
    is_new = record_decision(decision, event_log, now)
    has_reported_empty = report_empty_spans(
        config.notify, config.name, decision.empty_spans, event_log
    )
    if is_new and isinstance(decision, NotDue):
        if decision.is_problem:
            notify(config.notify, config.name, Occasion.FAILED, decision.reason, {}, event_log)
        elif not has_reported_empty and _is_new_skip(decision, before):
            notify(config.notify, config.name, Occasion.SKIPPED, decision.reason, {}, event_log)
    _note_left_out(config, decision, event_log, now)


def record_decision(decision: Due | NotDue, event_log: EventLog, now: datetime) -> bool:
    """Records a decision, unless it repeats the last decision.

    While a resource is unreachable, a decision to run is recorded only once.

    Returns:
      Whether the decision was recorded.
    """
    if isinstance(decision, Due):
        last = event_log.last(EventKind.DUE, EventKind.STARTED, *ENDS)
        new = (EventKind.DUE, decision.reason, decision.details)
        if last and (last.kind, last.message, last.details) == new:
            return False
        event_log.record(EventKind.DUE, decision.reason, at=now, **decision.details)
        return True
    if decision.details is None:
        return False
    last = event_log.last(EventKind.DUE, EventKind.SKIPPED, EventKind.RECOVERED)
    if last and (last.kind, last.message) == (EventKind.SKIPPED, decision.reason):
        return False
    details = decision.details
    if decision.exit_code != EXIT_PUSHED and not decision.is_unchecked:
        # A decision without a check, such as a hold, may have come in between.
        problem = read_history(event_log).problem
        if problem is not None and problem.message == decision.reason:
            return False
        details = details | {"exit_code": decision.exit_code}
    event_log.record(EventKind.SKIPPED, decision.reason, at=now, **details)
    return True


def _is_new_skip(decision: NotDue, before: LoggedEvent | None) -> bool:
    """Returns whether a firing started no run, for another reason than the firing before.

    Failures have their own notifications. If every firing is skipped for the same reason, such
    as missing data, one notification is enough until a run starts.
    """
    if decision.exit_code != EXIT_PUSHED or "firing" not in (decision.details or {}):
        return False
    is_same = (
        before is not None
        and before.kind is EventKind.SKIPPED
        and (before.message.partition(": ")[2] == decision.reason.partition(": ")[2])
    )
    return not is_same


def describe_lasting_problem(
    message: str, exit_code: int, event_log: EventLog, now: datetime
) -> str:
    """Returns a line about a lasting problem, with its beginning and its exit code.

    Args:
      message: the message of this check.
      exit_code: the exit code of the problem.
      event_log: the event log, with the run or check that first ended with this code.
    """
    last_success = event_log.last(EventKind.FINISHED, EventKind.RECOVERED)
    failing = [
        event
        for event in event_log.events(EventKind.FAILED, EventKind.SKIPPED)
        if event.id > (last_success.id if last_success else 0)
        and event.details.get("exit_code") == exit_code
    ]
    if not failing:
        return f"{message} (exit {exit_code})"
    # An event cannot have happened in the future.
    since = min(failing[0].at, now).astimezone(now.tzinfo).strftime("%Y-%m-%d %H:%M")
    failures = [event.message for event in failing if event.kind is EventKind.FAILED]
    cause = failures[-1] if failures else failing[-1].message
    suffix = f": {cause}" if cause not in message else ""
    return f"{message} (exit {exit_code} since {since}{suffix})"


def _note_recovery(decision: Due | NotDue, event_log: EventLog, now: datetime) -> None:
    """Records that a problem is over; if a run is due, the end of the run ends the problem."""
    if isinstance(decision, Due) or decision.exit_code != EXIT_PUSHED or decision.is_unchecked:
        return
    if problem := read_history(event_log).problem:
        event_log.record(EventKind.RECOVERED, f"over: {problem.message}", at=now)


def _note_left_out(
    config: PipelineConfig, decision: Due | NotDue, event_log: EventLog, now: datetime
) -> None:
    """Records each span that is left out until a user acts, and sends one notification."""
    if not decision.left_out:
        return
    recorded = {event.message for event in event_log.events(EventKind.LEFT_OUT)}
    for message in decision.left_out:
        if message not in recorded:
            event_log.record(EventKind.LEFT_OUT, message, at=now)
            notify(config.notify, config.name, Occasion.LEFT_OUT, message, {}, event_log)
