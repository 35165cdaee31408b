"""Results of played components, read as each of them ends."""

from __future__ import annotations

from typing import Any

from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import connection_config
from pipeline.records.summary import RunSummary, State
from pipeline.runs.artifact_results import ArtifactResults


class Reading:
    """Reads what each component left as soon as it has ended."""

    def __init__(self, config: PipelineConfig, layout: Layout) -> None:
        connection = connection_config(config.metadata, layout)
        self.results = ArtifactResults(connection, config, EventLog(layout.event_log))
        self.summary = RunSummary(
            run_id="run 1", pipeline=config.name, started="now", strategy="default"
        )
        self.lines: dict[str, tuple[State, str]] = {}

    def started(self, component: str) -> None:
        del component

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        del seconds
        self.lines[component] = self.results.read(component, state, execution, self.summary)


def config_of(**sections: Any) -> PipelineConfig:
    data = {"format": "csv", "path": "nowhere.csv"}
    raw = {"name": "read", "data": data, "task": "binary", "on_anomaly": "warn", **sections}
    return PipelineConfig.model_validate(raw)
