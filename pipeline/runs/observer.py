"""Watches a run: fills the summary, tells the screen and the ledger."""

from __future__ import annotations

import logging
import time
from datetime import datetime

from ml_metadata.proto import metadata_store_pb2

from pipeline.config.fingerprint import own_sources
from pipeline.config.settings import PipelineConfig
from pipeline.data.spans import Window
from pipeline.layout import RunLayout
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import (
    ComponentSummary,
    ErrorSummary,
    RunSummary,
    State,
    Status,
    WindowSummary,
)
from pipeline.runs.artifact_reader import ArtifactReader
from pipeline.runs.console import RunConsole
from pipeline.runs.failures import explain
from pipeline.runs.findings import SummaryBuilder

logger = logging.getLogger(__name__)


class RunObserver:
    """Watches the components: fills the summary, and tells the screen."""

    def __init__(
        self,
        config: PipelineConfig,
        connection: metadata_store_pb2.ConnectionConfig,
        files: RunLayout,
        console: RunConsole,
        run_events: RunEvents,
        window: Window | None,
        ingestion: str,
        began: float | None = None,
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
          began: when the run began, in seconds since 1970, if that was not now.
        """
        self._config = config
        self._files = files
        self._console = console
        self._run_events = run_events
        self._window = window
        self._ingestion = ingestion
        self._results = ArtifactReader(connection, config)
        self._began = time.time() if began is None else began
        self._current: str | None = None
        self.summary = RunSummary(
            run_id=files.root.name,
            pipeline=config.name,
            started=datetime.fromtimestamp(self._began).astimezone().isoformat(timespec="seconds"),
            strategy=config.train.strategy.kind,
            window=None if window is None else WindowSummary.of(window),
            notes=[] if window is None else list(window.notes),
        )
        self._findings = SummaryBuilder(config, self._results, self.summary)
        self.summary.write(files.summary)

    def started(self, component: str) -> None:
        """A component begins."""
        self._current = component
        self._run_events.started()
        self._console.started(component)

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        """A component ended: what it left is read at once."""
        if execution is not None and state is not State.FAILED:
            self._results.add(component, execution)
        state, detail = self._findings.of(component, state)
        self._note(component, state, seconds, detail)
        if component == "ExampleValidator" and state is not State.FAILED and self._window:
            self._run_events.ingested(
                self._window.newest,
                self.summary.examples,
                self._ingestion,
                self._results.examples_uri(),
            )

    def unreadable(self, component: str, state: State, seconds: float, detail: str) -> None:
        """A component ended, but what it left cannot be read: its own words have to do."""
        self._note(component, state, seconds, detail)

    def _note(self, component: str, state: State, seconds: float, detail: str) -> None:
        self.summary.components.append(
            ComponentSummary(name=component, state=state, seconds=round(seconds, 3))
        )
        self.summary.seconds = round(time.time() - self._began, 3)
        self.summary.write(self._files.summary)
        self._console.finished(component, state, seconds, detail)

    def conclude(self, error: BaseException | None) -> None:
        """Settles the status, from what was pushed or from what went wrong."""
        if error is None:
            self.settle(self._status())
        else:
            status, message = explain(error, own_sources(self._config))
            log = str(self._files.log)
            self.settle(status, ErrorSummary(component=self._current, message=message, log=log))

    def settle(self, status: Status, error: ErrorSummary | None = None) -> None:
        """Writes down how the run ended."""
        self.summary.status, self.summary.error = status, error
        self.summary.seconds = round(time.time() - self._began, 3)
        try:
            self.summary.write(self._files.summary)
        except OSError:
            # A full disk, say: the ledger, which is open already, may still take it.
            logger.exception("The summary could not be written")
        self._run_events.concluded(self.summary, self._model())

    def _model(self) -> str | None:
        """The uri of the Model, which only a run that pushed needs to have."""
        try:
            models = self._results.outputs("Trainer", "model")
        except Exception:
            if self.summary.pushed:
                raise
            logger.exception("The model could not be looked up")
            return None
        return models[0].uri if models else None

    def _status(self) -> Status:
        if self._current != "Pusher":
            return Status.VALIDATED
        return Status.PUSHED if self.summary.pushed is not None else Status.NOT_BLESSED
