"""Looks at a run's data before TFX is imported, and ends a run that does not come so far.

Such a run ends as it would have by ExampleGen, on the screen and in its records.
"""

from __future__ import annotations

from components.processes.stopping import settle
from pipeline.component_ids import ComponentId
from pipeline.layout import RunLayout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, State, Status
from pipeline.run_context import RunContext, RunRequest
from pipeline.runs.console import RunConsole, shown
from pipeline.runs.observer import RunObserver
from pipeline.runs.results.run_results import RunResults
from trainer_module.errors import DataError


class _NoResults(RunResults):
    """The results of a run of which no component has begun."""


def look_at_new_data(context: RunContext) -> None:
    """Checks what ExampleGen is going to read, but for what is known to be in its cache.

    Raises:
      DataError: they cannot be used.
    """
    # Rows of other families need not have a label.
    if not context.config.family.has_label or _has_been_read(context):
        return
    # Imported only now: commands that read no data do without Arrow.
    from pipeline.data.first_look import look_at_data

    look_at_data(context.reading, context.config.all_named_columns, context.data[-1])


def _has_been_read(context: RunContext) -> bool:
    """Whether the last run that ended well has read the same files, told the same."""
    last = EventLog(context.layout.event_log).last(EventKind.FINISHED)
    if last is None or last.details["config"] != context.config.fingerprint:
        return False
    span = context.data[-1]
    known = last.details["spans"].get(str(span.number), {})
    return known.get("signature") == span.signature


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
    observer = _make_observer(context, request, files, console)
    name = ComponentId.EXAMPLE_GEN.value
    observer.started(name)
    observer.finished(name, State.FAILED, 0.0, None)
    message = ErrorSummary(component=name, message=str(error), log=str(files.log))
    return _settle(observer, Status.after(error), message, files, console)


def stop(context: RunContext, request: RunRequest, files: RunLayout, console: RunConsole) -> int:
    """Writes down and shows that a run was stopped before a component began; as `refuse`."""
    settle()  # It is being done what the stop asks for.
    observer = _make_observer(context, request, files, console)
    message = ErrorSummary(component=None, message="interrupted", log=str(files.log))
    return _settle(observer, Status.INTERRUPTED, message, files, console)


def _make_observer(
    context: RunContext, request: RunRequest, files: RunLayout, console: RunConsole
) -> RunObserver:
    event_log, settings = EventLog(context.layout.event_log), context.config.event_settings
    data, because = list(context.data), request.because
    run_events = RunEvents(event_log, settings, files.root.name, data, because)
    return RunObserver(context, files, console, run_events, _NoResults())


def _settle(
    observer: RunObserver,
    status: Status,
    error: ErrorSummary,
    files: RunLayout,
    console: RunConsole,
) -> int:
    observer.settle(status, error)
    console.conclude(observer.summary, [f"summary: {shown(files.summary)}"])
    return status.exit_code
