"""The last step of a run, whatever became of the others: sums up, and tells who wants to know."""

from __future__ import annotations

import logging
import time

from pipeline.config import PipelineConfig
from pipeline.journal import Journal
from pipeline.kubeflow.compiled import BEGIN, StepReport
from pipeline.kubeflow.places import cluster_layout, run_root
from pipeline.kubeflow.steps.begin import BECAUSE
from pipeline.kubeflow.steps.overlap import is_alone
from pipeline.kubeflow.steps.run_folder import RunFolder, RunRecord
from pipeline.layout import Layout
from pipeline.ledger import Kind, Ledger
from pipeline.metadata import connection_config
from pipeline.recorder import Recorder
from pipeline.schedule.spans import NO_SPAN, Span
from pipeline.screen import Screen
from pipeline.summary import ErrorSummary, RunSummary, State, Status
from pipeline.versions.retention import delete_what_is_old

logger = logging.getLogger(__name__)


def conclude(told: PipelineConfig, run_id: str, screen: Screen) -> RunSummary:
    """Sums a run up: `summary.json`, the ledger, notifications, and what is to be deleted.

    Args:
      told: the config as it was compiled.
      run_id: of the run.
      screen: shows the run as a local one.

    Returns:
      The summary.
    """
    layout = cluster_layout(told)
    folder = RunFolder(run_root(layout), run_id)
    layout.run(run_id).root.mkdir(parents=True, exist_ok=True)
    screen.begin(f"{told.name}, run {run_id}")
    if (summary := _concluded_before(layout, run_id)) is not None:
        screen.conclude(summary, [])
        return summary
    record = folder.read_record()
    recorder = _recorder(record or _unbegun(told), layout, run_id, screen)
    failed = _replay(record, folder, recorder)
    if failed is None:
        recorder.conclude(None)
    else:
        log = f"kubeflow_runner.py logs {run_id} --step {failed.step.lower()}"
        if layout.is_kept:
            log = str(layout.run(run_id).log_of(failed.step))
        component = None if failed.step == BEGIN else failed.step
        error = ErrorSummary(component=component, message=failed.detail, log=log)
        recorder.settle(failed.status or Status.FAILED, error)
    if is_alone(told, layout, run_id):
        delete_what_is_old(record.config if record else told, layout, Ledger(layout.ledger))
    screen.conclude(recorder.summary, [])
    return recorder.summary


def _replay(record: RunRecord | None, folder: RunFolder, recorder: Recorder) -> StepReport | None:
    """Tells the recorder of every component that came to its end; gives the step that failed."""
    reports, unread = {BEGIN: folder.read_report(BEGIN)}, None
    for name in record.nodes if record else []:
        reports[name] = folder.read_report(name)
        report = reports[name]
        if report is not None and report.is_shown:
            unread = _tell(recorder, report) or unread
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


def _tell(recorder: Recorder, report: StepReport) -> StepReport | None:
    """Tells the recorder of a component; gives a report of failure if that cannot be read."""
    recorder.started(report.step)
    try:
        recorder.finished(report.step, report.state, report.seconds, report.execution)
    except Exception as error:
        logger.exception("What %s left cannot be read", report.step)
        recorder.unreadable(report.step, report.state, report.seconds, report.detail)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        detail = f"it ended well, but what it left cannot be read: {reason}"
        return report.model_copy(update={"state": State.FAILED, "detail": detail})
    return None


def _recorder(record: RunRecord, layout: Layout, run_id: str, screen: Screen) -> Recorder:
    config = record.config
    ledger = Ledger(layout.ledger)
    journal = Journal(ledger, config, run_id, record.data, record.because, record.states)
    journal.started()  # Where no step came so far.
    recorder = Recorder(
        config,
        connection_config(config, layout),
        layout.run(run_id),
        screen,
        journal,
        record.window,
        record.ingestion,
        record.began,
    )
    recorder.summary.notes = list(record.notes)
    return recorder


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
        ingestion="",
        is_alone=False,
        nodes={},
        shown=[],
    )


def _concluded_before(layout: Layout, run_id: str) -> RunSummary | None:
    """The summary, if an earlier attempt at this step came to its end but for saying so."""
    path = layout.run(run_id).summary
    ended = Ledger(layout.ledger).events(Kind.FINISHED, Kind.FAILED, run=run_id)
    return RunSummary.model_validate_json(path.read_text()) if ended and path.exists() else None
