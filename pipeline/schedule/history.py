"""Reads the earlier decisions and runs that the next decision needs from the event log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pipeline.clock import is_future
from pipeline.exit_codes import EXIT_FAILED
from pipeline.records.data_records import trainings
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent

ENDS = (EventKind.FINISHED, EventKind.FAILED)
"""The events that end a run."""
_RECENT_EVENTS = 200
"""The number of events to read, far more than the events of one decision and its run."""


@dataclass(frozen=True)
class History:
    """The last decision and the last runs."""

    due: LoggedEvent | None = None
    """The last decision to run."""
    started: LoggedEvent | None = None
    """The last run that began, by the scheduler or by hand."""
    end: LoggedEvent | None = None
    """The end of the last decision's run, or None if it has not ended."""
    is_unfinished: bool = False
    """Whether the last run has no recorded end, because the run was killed or is in progress."""
    trained: LoggedEvent | None = None
    """The end of the last run that trained."""
    decisions: tuple[LoggedEvent, ...] = ()
    """The latest decisions that handled firings, newest first."""
    problem: LoggedEvent | None = None
    """The last check that found a problem, or None if the problem is over or a run has followed."""
    accepted: tuple[LoggedEvent, ...] = ()
    """The spans that were accepted since the last decision to run or the last start."""

    @property
    def decision(self) -> dict[str, Any]:
        """The details of the last decision to run."""
        return self.due.details if self.due else {}

    @property
    def attempt(self) -> int:
        """The number of attempts of the last decision to run."""
        return int(self.decision.get("attempt", 1))

    @property
    def continuations(self) -> int:
        """The number of times in a row that the last decision's run was interrupted and resumed."""
        return int(self.decision.get("continued", 0))

    @property
    def was_started(self) -> bool:
        """Whether the last decision to run led to a run; True without a decision."""
        if self.due is None or self.end is not None:
            return True
        return self.started is not None and self.started.id > self.due.id

    @property
    def is_by_hand(self) -> bool:
        """Whether the last run was started by hand, not because of the last decision."""
        if self.started is None or self.due is None or self.started.id < self.due.id:
            return True
        if self.end is None or self.end.kind is not EventKind.FINISHED:
            return False
        return self.started.id > self.end.id

    @property
    def failure_code(self) -> int | None:
        """The exit code of the last decision's run, if it failed."""
        if self.end is None or self.end.kind is not EventKind.FAILED:
            return None
        return int(self.end.details.get("exit_code", EXIT_FAILED))

    @property
    def failed_at(self) -> datetime:
        """The time at which the last decision's run failed: the time of the decision plus its
        duration.

        Runs record their events with the machine's clock, which differs from the clock of a replay.
        """
        if self.due is None or self.end is None:
            raise ValueError("nothing has failed")
        duration = timedelta()
        if self.started is not None and self.due.id < self.started.id < self.end.id:
            duration = max(duration, self.end.at - self.started.at)
        return self.due.at + duration

    def firings_handled_until(self, clock_id: str, now: datetime) -> datetime | None:
        """Returns the time up to which the firings of a clock have been handled.

        Decisions with a time in the future are ignored: the firings of that time are still to come.

        Args:
          clock_id: the cron expression and its time zone.

        Returns:
          None if no decision had this clock.
        """
        for decision in self.decisions:
            handled = decision.details.get("handled")
            if handled and not is_future(until := datetime.fromisoformat(handled), now):
                return until if decision.details["clock"] == clock_id else None
        return None


def read_history(event_log: EventLog) -> History:
    """Returns the history from the newest events of decisions and runs."""
    due = started = end = None
    ended: set[str | None] = set()
    for event in event_log.events(EventKind.DUE, EventKind.STARTED, *ENDS, newest=_RECENT_EVENTS):
        if event.kind is EventKind.DUE:
            due, end = event, None
        elif event.kind is EventKind.STARTED:
            started = event
        else:
            ended.add(event.run)
            # The first successful end counts: later runs by hand do not belong to the decision.
            if due is not None and (end is None or end.kind is EventKind.FAILED):
                end = event
    checks = event_log.events(
        EventKind.DUE, EventKind.SKIPPED, EventKind.RECOVERED, *ENDS, newest=_RECENT_EVENTS
    )
    # A skip without an exit code has checked nothing.
    informative = [e for e in checks if e.kind is not EventKind.SKIPPED or "exit_code" in e.details]
    trained = trainings(event_log, newest=_RECENT_EVENTS)
    decided = reversed(event_log.events(EventKind.DUE, EventKind.SKIPPED, newest=_RECENT_EVENTS))
    # Runs record other skips, with the machine's clock, which differs from a replay's clock.
    by_clock = (e for e in decided if e.kind is EventKind.DUE or "handled" in e.details)
    since = max((event.id for event in (due, started) if event), default=0)
    accepted = event_log.events(EventKind.SPAN_ACCEPTED, newest=_RECENT_EVENTS)
    return History(
        due=due,
        started=started,
        end=end,
        is_unfinished=started is not None and started.run not in ended,
        accepted=tuple(event for event in accepted if event.id > since),
        problem=informative[-1]
        if informative and informative[-1].kind is EventKind.SKIPPED
        else None,
        trained=trained[-1] if trained else None,
        decisions=tuple(by_clock),
    )
