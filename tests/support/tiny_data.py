"""A pipeline on a dozen rows, and runs of it that check the data and go no further."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout, RunLayout
from pipeline.records.event_log import EventLog, LoggedEvent
from pipeline.run_context import RunRequest, resolve_run
from pipeline.runs.console import RunConsole
from pipeline.runs.execution import execute
from pipeline.runs.reruns import Reruns

HEADER = "size,side,label\n"
ROWS = HEADER + "".join(f"{n}.5,{('north', 'south')[n % 2]},{n // 2 % 2}\n" for n in range(12))

LONG_AGO = 1.7e9
"""Seconds since 1970."""


@dataclass(frozen=True)
class Checked:
    """A run that read and checked the data."""

    code: int
    files: RunLayout
    screen: str
    events: list[LoggedEvent]

    @property
    def summary(self) -> dict[str, Any]:
        """What programs read of it."""
        return dict(json.loads(self.files.summary.read_text()))

    @property
    def states(self) -> dict[str, str]:
        """The state of each component."""
        return {c["name"]: c["state"] for c in self.summary["components"]}


class TinyPipeline:
    """A config, its data and its output in a folder."""

    def __init__(self, folder: Path, path: str = "tiny.csv") -> None:
        """Writes nothing yet; `path` has a placeholder if the data comes in spans."""
        self.folder = folder
        self.data: dict[str, Any] = {"format": "csv", "path": str(folder / path)}
        self.layout = Layout(folder / "output", "tiny")
        self.layout.root.mkdir(parents=True)
        self._runs = 0

    def write(self, rows: str = ROWS, file: str = "tiny.csv") -> None:
        """Writes a file, long ago: it is not still being written, and rewritten it is the same."""
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(rows)
        os.utime(path, (LONG_AGO, LONG_AGO))

    def config(self, **changes: Any) -> PipelineConfig:
        """The config with some of its sections changed, as its file would be read."""
        raw = {"name": "tiny", "data": self.data, "task": "binary", **changes}
        file = self.folder / "tiny.yaml"
        file.write_text(yaml.safe_dump(raw))
        return load_config(file)

    def check(self, **changes: Any) -> Checked:
        """Executes a run that only validates, with some of the config changed."""
        self._runs += 1
        config, request = self.config(**changes), RunRequest(validate_only=True)
        files = self.layout.run(f"run {self._runs}")
        files.root.mkdir(parents=True)
        stream = io.StringIO()
        context = resolve_run(config, self.layout, request)
        code = execute(context, request, files, RunConsole(stream), Reruns(context))
        events = EventLog(self.layout.event_log).events(run=files.root.name)
        return Checked(code, files, stream.getvalue(), events)
