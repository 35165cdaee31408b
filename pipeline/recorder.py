"""Watches a run: fills the summary, tells the screen and the ledger."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2

from components.example_gen.paths import is_remote
from components.versions import WITHDRAWN_PROPERTY, push_version
from pipeline.config import PipelineConfig
from pipeline.failures import explain
from pipeline.fingerprint import own_sources
from pipeline.journal import Journal
from pipeline.layout import RunLayout
from pipeline.results import RunResults
from pipeline.schedule.spans import Window
from pipeline.screen import Screen
from pipeline.summary import (
    ComponentSummary,
    ErrorSummary,
    MetricSummary,
    RunSummary,
    State,
    Status,
    WindowSummary,
)

logger = logging.getLogger(__name__)


class Recorder:
    """Watches the components: fills the summary, and tells the screen."""

    def __init__(
        self,
        config: PipelineConfig,
        connection: metadata_store_pb2.ConnectionConfig,
        files: RunLayout,
        screen: Screen,
        journal: Journal,
        window: Window | None,
        ingestion: str,
    ) -> None:
        """Begins the summary.

        Args:
          config: of the run.
          connection: of the metadata store.
          files: of the run.
          screen: where people look.
          journal: of the run, for the ledger.
          window: of the run, where its data comes in spans.
          ingestion: the fingerprint of what decides how files become examples.
        """
        self._config = config
        self._files = files
        self._screen = screen
        self._journal = journal
        self._window = window
        self._ingestion = ingestion
        self._results = RunResults(connection, config)
        self._began = time.monotonic()
        self._current: str | None = None
        self.summary = RunSummary(
            run_id=files.root.name,
            pipeline=config.name,
            started=datetime.now().astimezone().isoformat(timespec="seconds"),
            strategy=config.train.strategy.kind,
            window=None if window is None else WindowSummary.of(window),
            notes=[] if window is None else list(window.notes),
        )
        self.summary.write(files.summary)

    def started(self, component: str) -> None:
        """A component begins."""
        self._current = component
        self._journal.started()
        self._screen.started(component)

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        """A component ended: what it left is read at once."""
        if execution is not None and state is not State.FAILED:
            self._results.add(component, execution)
        detail = self._read(component)
        if component == "Pusher" and state is not State.FAILED and not self.summary.pushed:
            state, detail = State.SKIPPED, detail or "the model is not blessed"
        self.summary.components.append(
            ComponentSummary(name=component, state=state, seconds=round(seconds, 3))
        )
        self.summary.seconds = round(time.monotonic() - self._began, 3)
        self.summary.write(self._files.summary)
        self._screen.finished(component, state, seconds, detail)
        if component == "ExampleValidator" and state is not State.FAILED and self._window:
            self._journal.ingested(
                self._window.newest,
                self.summary.examples,
                self._ingestion,
                self._results.examples_uri(),
            )

    def _read(self, component: str) -> str:
        """Adds a component's results to the summary; gives the gist of them."""
        reader = {
            "StatisticsGen": self._read_statistics,
            "ExampleValidator": self._read_anomalies,
            "Trainer": self._read_training,
            "Evaluator": self._read_evaluation,
            "Pusher": self._read_push,
        }.get(component)
        return reader() if reader else ""

    def _read_statistics(self) -> str:
        self.summary.examples = self._results.examples_per_split()
        return ", ".join(f"{split} {n:,}" for split, n in self.summary.examples.items())

    def _read_anomalies(self) -> str:
        anomalies = self._results.anomalies()
        self.summary.anomalies = [str(anomaly) for anomaly in anomalies if not anomaly.is_drift]
        self.summary.drift = [str(anomaly) for anomaly in anomalies if anomaly.is_drift]
        if not anomalies:
            return ""
        more = len(anomalies) - 1
        return f"warning: {anomalies[0]}" + (f" (and {more} more)" if more else "")

    def _read_training(self) -> str:
        training = self.summary.training = self._results.training()
        if not training:
            return ""
        self.summary.strategy = training["strategy"]
        self.summary.replicas = training["replicas"]
        replicas = "1 replica" if training["replicas"] == 1 else f"{training['replicas']} replicas"
        if training["workers"] > 1:
            replicas = f"{training['workers']} workers, {replicas}"
        return (
            f"{training['epochs']} epochs, best {training['best_epoch']}; "
            f"{training['strategy']}, {replicas}; {training['examples_per_second']:,.0f} examples/s"
        )

    def _read_evaluation(self) -> str:
        evaluation = self._results.evaluation()
        if evaluation is None:
            return ""
        self.summary.blessed, self.summary.reason = evaluation.blessed, evaluation.reason
        self.summary.metrics = {
            m.name: MetricSummary(value=m.value, in_service=m.in_service, needs=m.needs, ok=m.ok)
            for m in evaluation.metrics
        }
        self.summary.slices = evaluation.slices
        return "blessed" if evaluation.blessed else "not blessed"

    def _read_push(self) -> str:
        models = self._results.outputs("Trainer", "model")
        if any(model.get_int_custom_property(WITHDRAWN_PROPERTY) for model in models):
            self.summary.reason = "the model was withdrawn"
            return self.summary.reason
        pushed = self._results.pushed_version()
        if pushed is None:
            return ""
        self.summary.pushed = pushed.destination
        if is_remote(pushed.destination) or Path(pushed.destination).exists():
            return ""
        # A cached push whose version was deleted since: Pusher's own copy serves again.
        push_version(pushed.archive, Path(pushed.destination))
        return "the served version was gone; pushed again"

    def conclude(self, error: BaseException | None) -> None:
        """Settles the status, from what was pushed or from what went wrong."""
        if error is None:
            self.summary.status = self._status()
        else:
            self.summary.status, message = explain(error, own_sources(self._config))
            self.summary.error = ErrorSummary(
                component=self._current, message=message, log=str(self._files.log)
            )
        self.summary.seconds = round(time.monotonic() - self._began, 3)
        try:
            self.summary.write(self._files.summary)
        except OSError:
            # A full disk, say: the ledger, which is open already, may still take it.
            logger.exception("The summary could not be written")
        models = self._results.outputs("Trainer", "model")
        self._journal.concluded(self.summary, models[0].uri if models else None)

    def _status(self) -> Status:
        if self._current != "Pusher":
            return Status.VALIDATED
        return Status.PUSHED if self.summary.pushed is not None else Status.NOT_BLESSED
