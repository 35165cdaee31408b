"""Days of data with a simulated clock, and runs that record events as real ones do, and no more."""

from __future__ import annotations

import os
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.loading import load_config
from pipeline.config.sections.data import has_spans
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import locate_data
from pipeline.data.spans import Span, Window, choose_window, list_spans, whole_data
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import wait_for_deliveries
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, RunSummary, Status
from pipeline.schedule.decision import Due, NotDue, decide
from pipeline.schedule.record import note_decision

OTHER_ROWS = "a,label\n7,1\n"
ROWS = "a,label\n1,0\n2,1\n"
JANUARY = date(2026, 1, 1)


def at(day: int, hour: int = 3, minute: int = 0) -> datetime:
    """A time in January 2026, UTC."""
    return datetime.fromisoformat("2026-01-01T00:00:00+00:00") + timedelta(
        days=day - 1, hours=hour, minutes=minute
    )


class Days:
    """A pipeline with a span per day of January 2026; a day's data arrives at 1 the next night."""

    def __init__(self, folder: Path, schedule: dict[str, Any], **sections: Any) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.file = folder / "days.yaml"
        self.raw: dict[str, Any] = {
            "name": "days",
            "data": {
                "format": "csv",
                "path": str(folder / "days" / "{YYYY}-{MM}-{DD}" / "*.csv"),
                "label": "label",
            },
            "task": "binary",
            "schedule": schedule,
            **sections,
        }
        self.change({})
        self.layout = Layout.of(self.config.name, self.config.push, folder / "output")
        self.layout.root.mkdir(parents=True)
        self.event_log = EventLog(self.layout.event_log)
        self.runs = 0

    def change(self, changes: dict[str, Any]) -> None:
        """Writes the config file anew."""
        self.raw |= changes
        self.file.write_text(yaml.safe_dump(self.raw))

    @property
    def config(self) -> PipelineConfig:
        return load_config(self.file)

    def deliver(self, *days: int, rows: str = ROWS, arrives: datetime | None = None) -> None:
        """The data of some days arrives."""
        for day in days:
            path = self.folder / "days" / (JANUARY + timedelta(days=day - 1)).isoformat() / "t.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rows)
            moment = (arrives or at(day + 1, 1)).timestamp()
            os.utime(path, (moment, moment))

    def check(self, now: datetime) -> Due | NotDue:
        """Decides, and records the decision, as a scheduler does."""
        decision = decide(self.config, self.layout, self.event_log, now)
        note_decision(self.config, decision, self.event_log, now)
        return decision

    def begin(self, now: datetime, through: int | None = None, because: str = "test") -> RunEvents:
        """A run begins."""
        self.runs += 1
        data = self._data(now, through)
        run = f"run {self.runs}"
        run_events = RunEvents(self.event_log, self.config, run, data, because)
        run_events.record_start()
        return run_events

    def run(
        self,
        now: datetime,
        status: Status = Status.NOT_BLESSED,
        through: int | None = None,
        drift: list[str] | None = None,
    ) -> None:
        """A run from its beginning to its end."""
        run_events = self.begin(now, through)
        data = self._data(now, through)
        if has_spans(self.config.data):
            run_events.record_reading(data[-1], {"train": 2}, "settings", "uri")
        self.end(run_events, status, drift)

    def end(self, run_events: RunEvents, status: Status, drift: list[str] | None = None) -> None:
        """A run ends."""
        error = ErrorSummary(component="Trainer", message="it broke", log="run.log")
        summary = RunSummary(
            run_id=f"run {self.runs}",
            pipeline="days",
            started="now",
            strategy="default",
            status=status,
            drift=drift or [],
            error=error if status in (Status.FAILED, Status.UNUSABLE) else None,
        )
        run_events.record_end(summary, None)
        wait_for_deliveries()  # As the process of a run does at its end.

    def events(self, *kinds: EventKind) -> list[LoggedEvent]:
        return self.event_log.events(*kinds)

    def _data(self, now: datetime, through: int | None) -> list[Span]:
        config = self.config
        location = locate_data(config.data, self.layout)
        if not has_spans(config.data):
            return [whole_data(location, config.data)]
        spans = list_spans(config.data, location)
        window: Window = choose_window(spans, config.data, config.schedule_or_default, now, through)
        return list(window.spans)


def day_number(day: int) -> int:
    """The span of a day in January 2026."""
    return (JANUARY + timedelta(days=day - 1) - date(1970, 1, 1)).days
