"""What the tests of notifications share."""

from __future__ import annotations

from pathlib import Path

from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.notify import notify, wait_for_deliveries

DIGITS = Path(__file__).parents[2] / "configs" / "digits.yaml"
MESSAGE = "Trainer failed: größer als der Speicher"
DETAILS = {"run": "r1", "metrics": {"accuracy": 0.5}, "path": Path("/models/1")}


def tell(config: PipelineConfig, event_log: EventLog, occasion: Occasion = Occasion.FAILED) -> None:
    """Notifies, and waits until that is done."""
    notify(config.notify, config.name, occasion, MESSAGE, DETAILS, event_log, run="r1")
    wait_for_deliveries()


def failure(event_log: EventLog) -> str:
    """The one failure that is recorded."""
    (event,) = event_log.events()
    assert event.kind is EventKind.NOTIFICATION_FAILED
    assert (event.run, event.details) == ("r1", {"occasion": "failed"})
    return event.message
