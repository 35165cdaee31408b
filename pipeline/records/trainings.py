"""The runs that trained, as the event log tells of them."""

from __future__ import annotations

from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.summary import Status


def trainings(event_log: EventLog, newest: int | None = None) -> list[LoggedEvent]:
    """The good ends of runs that trained on a window, or found it trained on already.

    Args:
      event_log: of the pipeline.
      newest: how many ends of runs are looked at, those of validations included; all by default.

    Returns:
      Their events, oldest first.
    """
    ends = event_log.events(EventKind.FINISHED, newest=newest)
    return [
        event for event in ends if event.details["status"] not in (Status.VALIDATED, Status.TUNED)
    ]
