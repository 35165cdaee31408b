"""Ends a run whose data cannot be used before TFX is imported, as ExampleGen would."""

from __future__ import annotations

from pipeline.component_ids import ComponentId
from pipeline.layout import RunLayout
from pipeline.records.event_log import EventLog
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, RunSummary, State, Status
from pipeline.run_context import RunContext, RunRequest
from pipeline.runs.console import RunConsole, shown
from pipeline.runs.observer import RunObserver
from pipeline.runs.results.run_results import PushedVersion
from trainer_module.errors import DataError


class _NoResults:
    """The results of a run of which no component has begun."""

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds nothing."""
        del component, execution, summary
        return state, ""

    def examples_uri(self) -> str:
        """There are none."""
        return ""

    def model_uri(self) -> str | None:
        """There is none."""
        return None

    def pushed_version(self) -> PushedVersion | None:
        """There is none."""
        return None


def refuse(
    context: RunContext,
    request: RunRequest,
    files: RunLayout,
    console: RunConsole,
    error: DataError,
) -> int:
    """Writes down and shows why a run did not begin; gives its exit code.

    Args:
      context: of the run.
      request: what it was asked to do.
      files: of the run.
      console: where people look.
      error: what is wrong with the data.
    """
    event_log, run_id = EventLog(context.layout.event_log), files.root.name
    run_events = RunEvents(event_log, context.config, run_id, list(context.data), request.because)
    observer = RunObserver(context, files, console, run_events, _NoResults())
    name = ComponentId.EXAMPLE_GEN.value
    observer.started(name)
    observer.finished(name, State.FAILED, 0.0, None)
    message = ErrorSummary(component=name, message=str(error), log=str(files.log))
    observer.settle(Status.after(error), message)
    console.conclude(observer.summary, [f"summary: {shown(files.summary)}"])
    return observer.summary.status.exit_code
