"""A run whose components are played, observed as a real one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from pipeline.config.settings import PipelineConfig
from pipeline.data.files import DataLocation, File
from pipeline.data.spans import Span, Window
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.run_events import RunEvents
from pipeline.run_context import RunContext
from pipeline.runs.artifact_results import ArtifactResults
from pipeline.runs.console import RunConsole
from pipeline.runs.observer import RunObserver
from tests.support.evaluation_artifacts import Measured
from tests.support.small_components import play, training


class Recording:
    """A run that is recorded, and where that can be read."""

    def __init__(self, folder: Path, config: PipelineConfig, spans: int = 0) -> None:
        self.config = config
        self.layout = Layout(folder / "output", config.name)
        self.files = self.layout.run("run 1")
        self.files.root.mkdir(parents=True)
        self.event_log = EventLog(self.layout.event_log)
        self.stream = io.StringIO()
        data = folder / "data.csv"
        data.write_text("rows")
        file = File(str(data), 4, data.stat().st_mtime)
        numbers = range(1, spans + 1) if spans else [-1]
        found = [Span(number, None, (file,)) for number in numbers]
        window = Window(tuple(found), ("span 3 is empty; it is not read yet",)) if spans else None
        location = DataLocation(str(folder), {"all": data.name})
        context = RunContext(config, self.layout, location, window, tuple(found))
        self.ingestion = context.ingestion.fingerprint
        self.observer = RunObserver(
            context,
            self.files,
            RunConsole(self.stream),
            RunEvents(self.event_log, config, "run 1", found, "test"),
            ArtifactResults(context.connection, config, self.event_log),
        )

    @property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads(self.files.summary.read_text()))

    @property
    def states(self) -> dict[str, str]:
        return {c["name"]: c["state"] for c in self.summary["components"]}

    @property
    def lines(self) -> list[str]:
        """What a person saw."""
        return self.stream.getvalue().splitlines()

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.event_log.events()]

    def last(self, kind: EventKind) -> LoggedEvent:
        event = self.event_log.last(kind)
        assert event is not None
        return event

    def train(self, measured: Measured, **trained: int) -> None:
        """Plays a training with the verdict of an evaluation."""
        nodes = training(self.layout, measured.uri, measured.blessed, **trained)
        play(self.config, self.layout, self.observer, nodes)
