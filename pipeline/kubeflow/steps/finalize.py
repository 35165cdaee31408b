"""The last step of a run, which also runs after a failure: summary, ledger, notifications."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import NO_SPAN
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import DataLocation
from pipeline.data.spans import Span
from pipeline.kubeflow.cluster_layout import cluster_layout, run_root
from pipeline.kubeflow.compiled import SETUP, ComponentResult, StepReport
from pipeline.kubeflow.steps.outputs import Content, describe_run
from pipeline.kubeflow.steps.run_record import BECAUSE, RunFolder, RunRecord, is_alone
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.notify import deliveries
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, RunSummary, State, Status
from pipeline.run_context import RunContext
from pipeline.runs.console import RunConsole
from pipeline.runs.observer import PushedVersion, RunObserver, RunResults
from pipeline.versions.retention import Retention
from trainer_module.typed_words import typed_kubeflow_command

_NO_REPORT = (
    "<!doctype html><title>no report</title>"
    "<p>This run has no report; the log of the step conclude gives the reason.</p>"
)


@deliveries()
def finalize_run(compiled_config: PipelineConfig, run_id: str, console: RunConsole) -> RunSummary:
    """Writes `summary.json` and the ledger, sends notifications, and deletes expired runs.

    Returns:
      The summary.
    """
    layout = cluster_layout(compiled_config)
    folder = RunFolder(run_root(layout), run_id)
    layout.run(run_id).root.mkdir(parents=True, exist_ok=True)
    console.begin(f"{compiled_config.name}, run {run_id}")
    if (summary := _read_finished_summary(layout, run_id)) is not None:
        console.conclude(summary, [])
        return summary
    record = RunRecord.read(folder) or _record_without_setup(compiled_config)
    context = record.context(layout)
    reports = {name: folder.read_report(name) for name in (SETUP, *record.nodes)}
    components = {name: r for name, r in reports.items() if r is not None and name != SETUP}
    observer = _make_observer(record, context, run_id, console, ReportedResults(components))
    for name, report in components.items():
        if report.is_shown:
            observer.started(name)
            observer.finished(name, report.state, report.seconds, report.execution, report.ended)
    failed = _find_failure(reports)
    if failed is None:
        observer.restore_served_version()
        observer.conclude(None)
    else:
        log = typed_kubeflow_command(f"logs {run_id} --step {failed.step.lower()}")
        if layout.is_kept:
            log = str(layout.run(run_id).log_of(failed.step))
        component = None if failed.step == SETUP else failed.step
        error = ErrorSummary(component=component, message=failed.detail, log=log)
        observer.settle(failed.status or Status.FAILED, error, failed.has_drifted)
    if is_alone(compiled_config, layout, run_id):
        config, event_log = context.config, EventLog(layout.event_log)
        retention = Retention(config.schedule, config.drift, config.metadata, layout, event_log)
        observer.note(retention.delete_expired())
    # The report comes last, as it imports TFX and reads artifacts, which takes memory and time.
    costs = {name: report.found.cost for name, report in components.items()}
    line = observer.report({name: cost for name, cost in costs.items() if cost is not None})
    console.conclude(observer.summary, [line])
    return observer.summary


def describe_conclusion(
    compiled_config: PipelineConfig, run_id: str, summary: RunSummary
) -> dict[str, Content]:
    """Returns the outputs of the last step, for Kubeflow's UI."""
    layout = cluster_layout(compiled_config)
    evaluated = RunFolder(run_root(layout), run_id).read_report(ComponentId.EVALUATOR)
    explanation = None if evaluated is None else evaluated.found.explanation
    path = layout.run(run_id).report
    # The UI shows an error for a missing file.
    report = path.read_text() if path.exists() else _NO_REPORT
    return describe_run(summary, explanation, report)


def _find_failure(reports: Mapping[str, StepReport | None]) -> StepReport | None:
    """Returns the report of the failed step, or None. A step without a report counts as failed.

    Args:
      reports: the reports by step, in topological order.
    """
    for report in reports.values():
        if report is not None and report.state is State.FAILED:
            return report
    missing = next((name for name, report in reports.items() if report is None), None)
    if missing is None:
        return None
    return StepReport(
        step=missing,
        state=State.FAILED,
        seconds=0,
        detail="the step left no report: its pod was killed, perhaps for lack of memory or time, "
        "or never ran",
    )


def _make_observer(
    record: RunRecord, context: RunContext, run_id: str, console: RunConsole, results: RunResults
) -> RunObserver:
    config, layout = context.config, context.layout
    event_log = EventLog(layout.event_log)
    run_events = RunEvents(event_log, config, run_id, record.data, record.because, record.states)
    run_events.record_start()  # Has no effect if the first step has recorded the start.
    files = layout.run(run_id)
    observer = RunObserver(context, files, console, run_events, results, record.began)
    observer.summary.notes = list(record.notes)
    return observer


def _record_without_setup(compiled_config: PipelineConfig) -> RunRecord:
    """Returns the record of a run whose first step has not written a record."""
    return RunRecord(
        config=compiled_config,
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


def _read_finished_summary(layout: Layout, run_id: str) -> RunSummary | None:
    """Returns the summary if an earlier attempt at this step has completed the summary."""
    path = layout.run(run_id).summary
    ended = EventLog(layout.event_log).events(EventKind.FINISHED, EventKind.FAILED, run=run_id)
    return RunSummary.model_validate_json(path.read_text()) if ended and path.exists() else None


class ReportedResults(RunResults):
    """The results of a run, from the reports of its steps. This class reads no artifacts."""

    def __init__(self, reports: Mapping[str, StepReport]) -> None:
        """Stores the reports; reads nothing."""
        self._reports = reports

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds a component's results to the summary, as `RunResults` describes."""
        del execution
        report = self._reports[component]
        fields = dict(report.found.summary)
        # Notes come from several steps, every other field from one step.
        fields["notes"] = [*summary.notes, *fields.get("notes", [])]
        merged = RunSummary.model_validate(summary.model_dump() | fields)
        for name in fields:
            setattr(summary, name, getattr(merged, name))
        return state, report.detail

    def examples_uri(self) -> str:
        """Returns the URI of the examples."""
        return self._result_of(ComponentId.EXAMPLE_GEN).examples or ""

    def model_uri(self) -> str | None:
        """Returns the URI of the model, or None if the Trainer made no model."""
        return self._result_of(ComponentId.TRAINER).model

    def pushed_version(self) -> PushedVersion | None:
        """Returns the version that the Pusher made, or None if it pushed nothing."""
        return self._result_of(ComponentId.PUSHER).pushed

    def _result_of(self, component: str) -> ComponentResult:
        return self._reports[component].found if component in self._reports else ComponentResult()
