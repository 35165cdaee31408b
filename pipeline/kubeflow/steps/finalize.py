"""The last step of a run, whatever became of the others: sums up, and tells who wants to know."""

from __future__ import annotations

import logging
import time

from pipeline.config.settings import PipelineConfig
from pipeline.config.span_patterns import NO_SPAN
from pipeline.data.location import DataLocation
from pipeline.data.spans import Span
from pipeline.kubeflow.cluster_layout import cluster_layout, run_root
from pipeline.kubeflow.compiled import SETUP, StepReport
from pipeline.kubeflow.steps.concurrent_runs import is_alone
from pipeline.kubeflow.steps.run_folder import RunFolder, RunRecord
from pipeline.kubeflow.steps.setup import BECAUSE
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, RunSummary, State, Status
from pipeline.run_context import RunContext
from pipeline.runs.console import RunConsole
from pipeline.runs.observer import RunObserver
from pipeline.versions.retention import delete_expired

logger = logging.getLogger(__name__)


def conclude(told: PipelineConfig, run_id: str, console: RunConsole) -> RunSummary:
    """Sums a run up: `summary.json`, the ledger, notifications, and what is to be deleted.

    Args:
      told: the config as it was compiled.
      run_id: of the run.
      console: shows the run as a local one.

    Returns:
      The summary.
    """
    layout = cluster_layout(told)
    folder = RunFolder(run_root(layout), run_id)
    layout.run(run_id).root.mkdir(parents=True, exist_ok=True)
    console.begin(f"{told.name}, run {run_id}")
    if (summary := _concluded_before(layout, run_id)) is not None:
        console.conclude(summary, [])
        return summary
    record = folder.read_record()
    context = (record or _unbegun(told)).context(layout)
    observer = _make_observer(record or _unbegun(told), context, run_id, console)
    failed = _replay(record, folder, observer)
    if failed is None:
        observer.restore_served_version()
        observer.conclude(None)
    else:
        log = f"kubeflow_runner.py logs {run_id} --step {failed.step.lower()}"
        if layout.is_kept:
            log = str(layout.run(run_id).log_of(failed.step))
        component = None if failed.step == SETUP else failed.step
        error = ErrorSummary(component=component, message=failed.detail, log=log)
        observer.settle(failed.status or Status.FAILED, error)
    if is_alone(told, layout, run_id):
        delete_expired(context.config, layout, EventLog(layout.event_log), context.connection)
    console.conclude(observer.summary, [])
    return observer.summary


def _replay(
    record: RunRecord | None, folder: RunFolder, observer: RunObserver
) -> StepReport | None:
    """Tells the recorder of every component that came to its end; gives the step that failed."""
    reports, unread = {SETUP: folder.read_report(SETUP)}, None
    for name in record.nodes if record else []:
        reports[name] = folder.read_report(name)
        report = reports[name]
        if report is not None and report.is_shown:
            unread = _tell(observer, report) or unread
    said = [report for report in reports.values() if report is not None]
    failed = next((report for report in said if report.state is State.FAILED), None)
    silent = next((name for name, report in reports.items() if report is None), None)
    if failed is not None or (silent is None and unread is None):
        return failed
    if silent is None:
        return unread
    return StepReport(
        step=silent,
        state=State.FAILED,
        seconds=0,
        detail="it left no word: its pod was killed, perhaps out of memory or time, or never ran",
    )


def _tell(observer: RunObserver, report: StepReport) -> StepReport | None:
    """Tells the recorder of a component; gives a report of failure if that cannot be read."""
    observer.started(report.step)
    try:
        observer.finished(report.step, report.state, report.seconds, report.execution)
    except Exception as error:
        logger.exception("What %s left cannot be read", report.step)
        observer.unreadable(report.step, report.state, report.seconds, report.detail)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        detail = f"it ended well, but what it left cannot be read: {reason}"
        return report.model_copy(update={"state": State.FAILED, "detail": detail})
    return None


def _make_observer(
    record: RunRecord, context: RunContext, run_id: str, console: RunConsole
) -> RunObserver:
    config, layout = context.config, context.layout
    event_log = EventLog(layout.event_log)
    run_events = RunEvents(event_log, config, run_id, record.data, record.because, record.states)
    run_events.started()  # Where no step came so far.
    observer = RunObserver(context, layout.run(run_id), console, run_events, record.began)
    observer.summary.notes = list(record.notes)
    return observer


def _unbegun(told: PipelineConfig) -> RunRecord:
    """What is known of a run whose first step failed."""
    return RunRecord(
        config=told,
        because=BECAUSE,
        began=time.time(),
        window=None,
        data=[Span(NO_SPAN, None, ())],
        states={},
        notes=[],
        ingestion=None,
        location=DataLocation("", {}),
        is_alone=False,
        nodes={},
        shown=[],
    )


def _concluded_before(layout: Layout, run_id: str) -> RunSummary | None:
    """The summary, if an earlier attempt at this step came to its end but for saying so."""
    path = layout.run(run_id).summary
    ended = EventLog(layout.event_log).events(EventKind.FINISHED, EventKind.FAILED, run=run_id)
    return RunSummary.model_validate_json(path.read_text()) if ended and path.exists() else None
