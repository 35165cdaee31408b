"""What the ledger says of earlier decisions and runs, as far as the next decision needs it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pipeline.exit_codes import EXIT_FAILED
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.summary import Status

_ENDS = (EventKind.FINISHED, EventKind.FAILED)
_RECENT = 200
"""Events; far more than what one decision and its run write."""


@dataclass(frozen=True)
class History:
    """The last decision and the last runs."""

    due: LoggedEvent | None = None
    """The last decision to run."""
    started: LoggedEvent | None = None
    """The last run that began, whoever started it."""
    end: LoggedEvent | None = None
    """How what was decided last ended; None if nothing has."""
    is_unfinished: bool = False
    """Whether the last run that began was killed, or is under way."""
    trained: LoggedEvent | None = None
    """The end of the last run that trained."""
    handled: LoggedEvent | None = None
    """The last event that says up to when the clock's firings have been dealt with."""

    @property
    def decision(self) -> dict[str, Any]:
        """The details of the last decision to run."""
        return self.due.details if self.due else {}

    @property
    def attempt(self) -> int:
        """How often what was decided last was tried."""
        return int(self.decision.get("attempt", 1))

    @property
    def continued(self) -> int:
        """How often in a row what was decided last was interrupted."""
        return int(self.decision.get("continued", 0))

    @property
    def was_started(self) -> bool:
        """Whether anything came of the last decision."""
        begun = self.started is not None and self.due is not None and self.started.id > self.due.id
        return self.due is None or begun or self.end is not None

    @property
    def is_by_hand(self) -> bool:
        """Whether the last run that began has nothing to do with the last decision."""
        if self.started is None or self.due is None or self.started.id < self.due.id:
            return True
        settled = self.end is not None and self.end.kind is EventKind.FINISHED
        return settled and self.end is not None and self.started.id > self.end.id

    @property
    def failure(self) -> int | None:
        """The exit code of what was decided last, if it failed."""
        if self.end is None or self.end.kind is not EventKind.FAILED:
            return None
        return int(self.end.details.get("exit_code", EXIT_FAILED))

    def failed_at(self) -> datetime:
        """When what was decided last failed, by the clock that decides.

        Runs write the ledger by the machine's clock, which a replay's differs from.
        """
        if self.due is None or self.end is None:
            raise ValueError("nothing has failed")
        took = timedelta()
        if self.started is not None and self.due.id < self.started.id < self.end.id:
            took = max(took, self.end.at - self.started.at)
        return self.due.at + took

    def handled_until(self, clock: str) -> datetime | None:
        """Up to when the firings of a clock have been dealt with; None if it is new."""
        if self.handled is None or self.handled.details["clock"] != clock:
            return None
        return datetime.fromisoformat(self.handled.details["handled"])


def read_history(event_log: EventLog) -> History:
    """Reads the ledger's newest events."""
    due = started = end = None
    ended: set[str | None] = set()
    for event in event_log.events(EventKind.DUE, EventKind.STARTED, *_ENDS, newest=_RECENT):
        if event.kind is EventKind.DUE:
            due, end = event, None
        elif event.kind is EventKind.STARTED:
            started = event
        else:
            ended.add(event.run)
            # What has ended well is settled; a later run by hand changes nothing about it.
            if due is not None and (end is None or end.kind is EventKind.FAILED):
                end = event
    finished = reversed(event_log.events(EventKind.FINISHED, newest=_RECENT))
    decided = reversed(event_log.events(EventKind.DUE, EventKind.SKIPPED, newest=_RECENT))
    return History(
        due=due,
        started=started,
        end=end,
        is_unfinished=started is not None and started.run not in ended,
        trained=next((e for e in finished if e.details["status"] != Status.VALIDATED), None),
        handled=next((e for e in decided if "handled" in e.details), None),
    )
