"""Records of simulated nights of retraining, without training: event log, metadata, versions.

The first nights use TFX's own launcher, with executors that only write output files. Each later
night is a copy of the night before, a day later.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import yaml
from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as pb
from tfx.components.evaluator import constants
from tfx.dsl.compiler import compiler
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import execution_result_pb2

from components.pusher.versions import PROVENANCE_FILE, Provenance
from pipeline.config.loading import load_config
from pipeline.graph.create import create_pipeline
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import sqlite_connection
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ComponentSummary, MetricSummary, RunSummary, State, Status
from pipeline.run_context import RunContext, RunRequest, resolve_run
from pipeline.runs.local import ReplacingOperator, compiled_nodes, launch
from pipeline.runs.window_reader import make_spans
from pipeline.schedule.check import record_decision
from pipeline.schedule.decision import Due, decide
from tools.simulated_days.recording import RecordedNight

FIRST_DAY = date(2024, 1, 1)
ARRIVAL, CHECK = time(1, tzinfo=UTC), time(3, 10, tzinfo=UTC)
"""The time of the night at which the data of the previous day arrives, and the time at which the
scheduler runs."""
WINDOW = 3
LAUNCHED_NIGHTS = WINDOW + 2
"""The number of nights that use TFX's launcher.

The last of these nights has a full window, and artifacts for all inputs to resolve."""
ROWS = "size,side,label\n" + "".join(
    f"{n}.5,{('north', 'south')[n % 2]},{n // 2 % 2}\n" for n in range(12)
)
CONFIG: dict[str, Any] = {
    "name": "nights",
    "data": {"format": "csv", "label": "label"},
    "task": "binary",
    "evaluate": {"thresholds": {"auc": {"min": 0.8}}},
    "drift": {"columns": {"size": {"jensen_shannon": 0.2}}},
    "schedule": {"cron": "0 3 * * *", "window": {"last": WINDOW}, "warm_start": True},
}
ANOMALY = "train split, side: expected one of 'north', 'south'; found 'east' in 1 of 11 rows"


class _OutputFolders(ReplacingOperator):
    """An executor operator that only writes output files, and blesses all models."""

    def run_executor(
        self, execution_info: data_types.ExecutionInfo
    ) -> execution_result_pb2.ExecutorOutput:
        for artifacts in execution_info.output_dict.values():
            for artifact in artifacts:
                (Path(artifact.uri) / "content").write_bytes(b"content")
        for blessing in execution_info.output_dict.get("blessing", []):
            (model,) = execution_info.input_dict["model"]
            blessing.set_int_custom_property(
                constants.ARTIFACT_PROPERTY_BLESSED_KEY, constants.BLESSED_VALUE
            )
            blessing.set_int_custom_property(
                constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id
            )
        return execution_result_pb2.ExecutorOutput()


class Nights:
    """A pipeline with recorded nights."""

    def __init__(self, folder: Path, **schedule: Any) -> None:
        """Writes the config; `schedule` contains additional keys of its section `schedule`."""
        self.folder = folder
        self.file = folder / "nights.yaml"
        data = CONFIG["data"] | {"path": str(folder / "days" / "{YYYY}-{MM}-{DD}" / "*.csv")}
        settings = CONFIG | {"data": data, "schedule": CONFIG["schedule"] | schedule}
        self.file.write_text(yaml.safe_dump(settings))
        self.config = load_config(self.file)
        self.output = folder / "output"
        self.layout = Layout.of(self.config.name, self.config.push, self.output)
        self.layout.root.mkdir(parents=True)
        self.event_log = EventLog(self.layout.event_log)
        self.nights = 0
        self._last = RecordedNight({}, {})

    @property
    def now(self) -> datetime:
        """The time at which the scheduler runs after the last night's data."""
        return self._night(self.nights, CHECK)

    @property
    def store(self) -> MetadataStore:
        """The ML Metadata store of the pipeline."""
        return MetadataStore(sqlite_connection(self.layout.metadata))

    def play(self, nights: int, launch_all: bool = False) -> None:
        """Records more nights; with `launch_all`, all of them use TFX's launcher."""
        store = self.store
        for _ in range(nights):
            self.nights += 1
            self._deliver()
            self._record_night(store, launch_all or self.nights <= LAUNCHED_NIGHTS)

    def _night(self, number: int, at: time) -> datetime:
        return datetime.combine(FIRST_DAY + timedelta(days=number), at)

    def _deliver(self) -> None:
        day = FIRST_DAY + timedelta(days=self.nights - 1)
        path = self.folder / "days" / day.isoformat() / "rows.csv"
        path.parent.mkdir(parents=True)
        path.write_text(ROWS)
        arrived = self._night(self.nights, ARRIVAL).timestamp()
        os.utime(path, (arrived, arrived))

    def _record_night(self, store: MetadataStore, launch_all: bool) -> None:
        """Records a decision, a run and its push."""
        config, run = self.config, self.now.strftime("%Y-%m-%dT%H-%M-%S.%f")
        decision = decide(config, self.layout, self.event_log, self.now)
        if not isinstance(decision, Due):
            raise RuntimeError(decision.reason)
        record_decision(decision, self.event_log, self.now)
        context = resolve_run(config, self.layout, RunRequest())
        data = list(context.data)
        events = RunEvents(self.event_log, config, run, data, decision.reason)
        events.record_start()
        if launch_all:
            self._launch(context, run)
            self._last = RecordedNight.of(store, run, self._last)
        else:
            self._last = self._last.copy_night(store, run, WINDOW + 2)
        newest, examples = context.data[-1], self._last.outputs["ExampleGen", "examples"].uri
        events.record_reading(newest, {"train": 11, "eval": 1}, "settings", examples)
        model = self._last.outputs["Trainer", "model"]
        version = Path(self.layout.serving) / str(int(self.now.timestamp()))
        self._push(model, version, run)
        events.record_end(self._summary(run, version), model.uri)

    def _launch(self, context: RunContext, run: str) -> None:
        spans = make_spans(context.data, self.config.drift, self.event_log)
        compiled = compiler.Compiler().compile(create_pipeline(context, spans))
        for node in compiled_nodes(compiled, run):
            launch(node, _OutputFolders)

    def _push(self, model: pb.Artifact, version: Path, run: str) -> None:
        folder = self.layout.run(run).root
        folder.mkdir(parents=True)
        at = self.now.timestamp()
        (folder / "run.log").write_text("a line of the log\n" * 100)
        os.utime(folder, (at, at))
        shutil.copytree(model.uri, version)
        provenance = Provenance(
            model.uri, model.id, model.create_time_since_epoch, run, self.now.isoformat()
        )
        (version / PROVENANCE_FILE).parent.mkdir()
        (version / PROVENANCE_FILE).write_text(json.dumps(asdict(provenance)))

    def _summary(self, run: str, version: Path) -> RunSummary:
        components = [
            ComponentSummary(name=name, state=state, seconds=1)
            for name, state in (("SchemaGen", State.CACHED), ("Trainer", State.RAN))
        ]
        metric = MetricSummary(value=0.9, in_service=0.89, needs="at least 0.8", ok=True)
        return RunSummary(
            run_id=run,
            pipeline=self.config.name,
            started=self.now.isoformat(),
            strategy="default",
            status=Status.PUSHED,
            components=components,
            anomalies=[ANOMALY] * (self.nights % 3 == 0),
            metrics={"auc": metric},
            blessed=True,
            reason="auc is 0.9, and 0.89 in service",
            pushed=str(version),
        )
