"""Observes a run: fills its summary, shows it on the console, and records it in the event log."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from components.example_validator.verdict import span_command
from components.processes.stopping import attempt_last
from components.pusher.versions import restore_version
from components.user_errors import is_drift
from pipeline.component_ids import ComponentId
from pipeline.config.user_code import own_sources
from pipeline.credentials import mask_credentials
from pipeline.layout import RunLayout
from pipeline.records.details import StepCost
from pipeline.records.notify import wait_for_deliveries
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import (
    ComponentSummary,
    ErrorSummary,
    RunSummary,
    State,
    Status,
    WindowSummary,
)
from pipeline.run_context import RunContext
from pipeline.runs.console import RunConsole
from pipeline.runs.reporting import how_to_report, report_run, write_for_other_tools
from trainer_module.errors import shorten


@dataclass(frozen=True)
class PushedVersion:
    """A pushed model: the served folder, and the copy among the Pusher's artifacts."""

    destination: str
    """The served folder, or its URI."""
    archive: Path
    """The Pusher's own copy."""


class RunResults:
    """The results of a run without components; the base class of other sources of results."""

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds the results of a component that has ended to the summary.

        Args:
          state: the state of its execution in TFX.
          execution: the id of the execution in the metadata, or None.

        Returns:
          The state to show, and a short description of the results.
        """
        del component, execution, summary
        return state, ""

    def examples_uri(self) -> str:
        """Returns the URI of the examples."""
        return ""

    def model_uri(self) -> str | None:
        """Returns the URI of the model, or None if the Trainer made no model."""
        return None

    def pushed_version(self) -> PushedVersion | None:
        """Returns the version that the Pusher made, or None if it pushed nothing."""
        return None


logger = logging.getLogger(__name__)

_REFUSING_COMPONENTS = (ComponentId.EXAMPLE_GEN, ComponentId.EXAMPLE_VALIDATOR)
"""The components that refuse data."""


class RunObserver:
    """An observer that adds each component to the summary, and shows it on the console."""

    def __init__(
        self,
        context: RunContext,
        files: RunLayout,
        console: RunConsole,
        run_events: RunEvents,
        results: RunResults,
        began: float | None = None,
    ) -> None:
        """Begins the summary of the run.

        Args:
          began: the start of the run in seconds since 1970; default: now.
        """
        config, window = context.config, context.window
        self._context = context
        self._files = files
        self._console = console
        self._run_events = run_events
        self._results = results
        now = time.time()
        started = now if began is None else began
        # A run on other machines began earlier; this process measures the time from now on.
        self._began = time.monotonic() - max(0.0, now - started)
        self._current: str | None = None
        self.summary = RunSummary(
            run_id=files.root.name,
            pipeline=config.name,
            started=_show_moment(started),
            strategy=config.train.strategy.kind,
            window=None if window is None else WindowSummary.of(window),
            notes=[] if window is None else list(window.notes),
        )
        self.summary.write(files.summary)

    def started(self, component: str) -> None:
        """Records and shows the start of a component."""
        self._current = component
        self._run_events.record_start()
        self._console.started(component)

    def finished(
        self,
        component: str,
        state: State,
        seconds: float,
        execution: int | None,
        ended: float | None = None,
    ) -> None:
        """Reads the results of a component that has ended, and shows them.

        Args:
          state: the state of its execution in TFX.
          execution: the id of the execution in the metadata, or None.
          ended: its end in seconds since 1970; default: now.
        """
        began = (time.time() if ended is None else ended) - seconds
        state, detail = self._results.read(component, state, execution, self.summary)
        self.summary.components.append(
            ComponentSummary(
                name=component,
                state=state,
                seconds=round(seconds, 3),
                started=_show_moment(began, "milliseconds"),
            )
        )
        self._write_summary()
        self._console.finished(component, state, seconds, detail)
        if component == ComponentId.EXAMPLE_VALIDATOR and state.has_result:
            self._note_ingestion()

    def _note_ingestion(self) -> None:
        """Records that the newest span has been read, if the data has spans."""
        if self._context.window is not None:
            self._run_events.record_reading(
                self._context.window.newest,
                self.summary.examples,
                self._context.ingestion.fingerprint,
                self._results.examples_uri(),
            )

    def restore_served_version(self) -> None:
        """Restores the pushed version in the serving folder, if it was deleted or damaged there.

        A cached execution of the Pusher does not check the folder.
        """
        pushed = self._results.pushed_version() if self.summary.pushed else None
        if pushed is None:
            return
        if problem := restore_version(pushed.archive, pushed.destination):
            self.summary.notes.append(f"the served version {problem}; pushed again")

    def conclude(self, error: BaseException | None) -> None:
        """Records the end of the run; the status follows from the results or from the error."""
        if error is None:
            self.settle(self._status())
        else:
            # The import is here, because this module imports TFX.
            from pipeline.runs.local import explain

            status, message = explain(error, own_sources(self._context.config.own_code.values()))
            if (window := self._context.window) is not None:
                # Only the context has the names of spans.
                message = message.replace(span_command(), span_command(window.newest.name))
            log = str(self._files.log)
            summary = ErrorSummary(component=self._current, message=message, log=log)
            self.settle(status, summary, is_drift(error))

    def settle(
        self, status: Status, error: ErrorSummary | None = None, has_drifted: bool = False
    ) -> None:
        """Records the end of the run.

        Args:
          error: the error, if the run ended early.
          has_drifted: whether drift is the only error.
        """
        self.summary.status, self.summary.error = status, error
        self._write_summary()
        # Only pushed versions need the URI: the metadata may be in use when a run is stopped.
        model = self._results.model_uri() if self.summary.pushed else None
        if error is not None and status is Status.UNUSABLE:
            self._note_refusal(error, has_drifted)
        self._run_events.record_end(self.summary, model)

    def note(self, notes: Sequence[str]) -> None:
        """Adds notes to a run that has ended."""
        if notes:
            self.summary.notes += notes
            self._write_summary()

    def report(self, costs: Mapping[str, StepCost] | None = None) -> str:
        """Adds the details of a run that has ended to its summary, and writes the report and the
        files for other tools. A signal ends the report, but changes nothing else.

        Args:
          costs: the measured costs of components, by name.

        Returns:
          A line with the path of the report, or with the reason why there is no report.
        """
        # The last write of the summary may be that of an earlier component.
        self.summary.seconds = round(time.monotonic() - self._began, 3)
        lines = list[str]()
        attempt_last(
            lambda: lines.append(report_run(self._context, self._files, self.summary, costs)),
            wait_for_deliveries,
            self.summary.status.exit_code,
        )
        line = lines[0] if lines else f"report: not written (stopped); {how_to_report()}"
        self.summary.notes += write_for_other_tools(self.summary, self._context.layout)
        self._write_summary()
        return line

    def _note_refusal(self, error: ErrorSummary, has_drifted: bool) -> None:
        """Records that the newest span was refused, if the refusal ended the run."""
        window = self._context.window
        if window is not None and error.component in _REFUSING_COMPONENTS:
            # Without settings in the record, a later run with a newer span checks the span again.
            self._run_events.record_refusal(window.newest, error.message, "", has_drifted)

    def _write_summary(self) -> None:
        """Writes the summary; an error, such as a full disk, does not fail the run."""
        self.summary.seconds = round(time.monotonic() - self._began, 3)
        self.summary.notes = list(map(mask_credentials, self.summary.notes))
        try:
            self.summary.write(self._files.summary)
        except (OSError, ValueError) as error:
            logger.exception("The summary could not be written")
            reason = error.strerror if isinstance(error, OSError) else shorten(error)
            note = f"{self._files.summary} cannot be written ({reason}) and is out of date"
            if note not in self.summary.notes:
                self.summary.notes.append(note)

    def _status(self) -> Status:
        if self._current == ComponentId.TUNER:
            return Status.TUNED
        if self._current != ComponentId.PUSHER:
            return Status.VALIDATED
        if self.summary.waiting is not None:
            return self.summary.waiting.status
        return Status.PUSHED if self.summary.pushed is not None else Status.NOT_BLESSED


def _show_moment(seconds: float, precision: str = "seconds") -> str:
    """Returns a time in seconds since 1970 as text with its UTC offset."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec=precision)
