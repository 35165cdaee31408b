"""Runs one TFX node with TFX's own launcher, as LocalDagRunner does."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime

from components.beam_workers.options import limit_workers
from components.evaluator.explanation.record import Explanation
from components.processes.kubernetes.pod_settings import PodSettings
from components.processes.stopping import check_stop
from pipeline.component_ids import TRAINING, ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import cluster_layout, run_root, settings_of, variables_of
from pipeline.kubeflow.compiled import ComponentResult, ProgressLines, StepReport
from pipeline.kubeflow.kubeflow_rules import TASKS
from pipeline.kubeflow.nodes import make_concrete, read_node_id
from pipeline.kubeflow.steps.finalize import ReportedResults
from pipeline.kubeflow.steps.run_record import RunFolder, RunRecord
from pipeline.records.event_log import EventLog
from pipeline.records.summary import RunSummary, State, WindowSummary
from pipeline.runs.artifact_results import ArtifactResults
from pipeline.runs.console import RunConsole
from pipeline.runs.costs import CostMeter
from pipeline.runs.local import ComponentFailedError, compiled_nodes, launch
from pipeline.runs.push_gate import PushGate
from pipeline.runs.training import prepare_training
from trainer_module.errors import ConfigError
from trainer_module.runtime import PROGRESS_LOGGER


def run_node(packed: str, record: RunRecord, run_id: str, console: RunConsole) -> StepReport:
    """Runs a node, or reuses the result of an earlier attempt in the same run.

    Args:
      packed: the pipeline of this node.
      record: the record that the first step wrote.
      run_id: the run's id; a second attempt resumes the execution of the first.

    Returns:
      The report of the step.

    Raises:
      ConfigError: the code of the image has no such node.
      ComponentFailedError: the inputs could not be resolved.
      KeyboardInterrupt: this process received a signal to stop.
      Exception: the component raised an exception.
    """
    context, name = record.context(cluster_layout(record.config)), read_node_id(packed)
    try:
        single = make_concrete(packed, record.nodes)
    except KeyError:
        raise ConfigError(
            f"{name}: the code of the image has no such component; compile the pipeline with the "
            "image's code, or build the image again"
        ) from None
    (node,) = compiled_nodes(single, run_id, connection=context.connection)
    console.started(name)
    if name in TRAINING:
        scope = "" if record.is_alone else run_id
        for note in prepare_training(record.config.train, _pod_settings(record.config), scope):
            console.write(f"note: {note}")
    progress = logging.getLogger(PROGRESS_LOGGER)
    handlers = (console, ProgressLines(console))
    for handler in handlers:
        progress.addHandler(handler)
    started = time.monotonic()
    folder = RunFolder(run_root(context.layout), run_id)
    reports = {name: r for name in record.shown if (r := folder.read_report(name)) is not None}
    results = ArtifactResults(
        context.connection, context.config, EventLog(context.layout.event_log)
    )
    for component, report in reports.items():
        if report.execution is not None:
            results.add(component, report.execution)
    summary = RunSummary(run_id=run_id, pipeline="", started="", strategy="")
    card = _earlier_summary(record, reports, run_id) if name == ComponentId.PUSHER else None
    gate, meter = PushGate(context, results, summary, card), CostMeter()
    check_stop()
    try:
        with gate(name) as may_run, limit_workers(record.config.beam.workers), meter.measure(name):
            state, execution = launch(node) if may_run else (State.SKIPPED, None)
    finally:
        for handler in handlers:
            progress.removeHandler(handler)
    if state is State.FAILED:
        raise ComponentFailedError(name)
    seconds = time.monotonic() - started
    detail, result = "", ComponentResult()
    if not node.is_system:
        state, detail, result = _summarize(results, summary, name, state, execution)
        result.cost = meter.costs.get(name)
        console.finished(name, state, seconds, detail)
    return StepReport(
        step=name,
        state=state,
        seconds=seconds,
        detail=detail,
        is_shown=not node.is_system,
        execution=execution,
        found=result,
    )


def _earlier_summary(
    record: RunRecord, reports: Mapping[str, StepReport], run_id: str
) -> RunSummary:
    """Returns the summary with the results that the steps before this one reported."""
    summary = RunSummary(
        run_id=run_id,
        pipeline=record.config.name,
        started=datetime.fromtimestamp(record.began).astimezone().isoformat(timespec="seconds"),
        strategy=record.config.train.strategy.kind,
        window=None if record.window is None else WindowSummary.of(record.window),
        notes=list(record.notes),
    )
    results = ReportedResults(reports)
    for name, report in reports.items():
        results.read(name, report.state, report.execution, summary)
    return summary


def _summarize(
    results: ArtifactResults,
    summary: RunSummary,
    name: str,
    state: State,
    execution: int | None,
) -> tuple[State, str, ComponentResult]:
    """Returns the state of a component, a line about its results, and the results."""
    state, detail = results.read(name, state, execution, summary)
    fields = summary.model_dump(mode="json", exclude_defaults=True)
    result = ComponentResult(
        summary={key: value for key, value in fields.items() if value != ""},
        examples=results.examples_uri() if name == ComponentId.EXAMPLE_GEN else None,
        model=results.model_uri() if name == ComponentId.TRAINER else None,
        pushed=results.pushed_version() if name == ComponentId.PUSHER else None,
        rows=results.example_rows() if name == ComponentId.EXAMPLE_GEN else {},
        explanation=_shown_part(results.explanation()) if name == ComponentId.EVALUATOR else None,
    )
    return state, detail, result


def _shown_part(explanation: Explanation | None) -> Explanation | None:
    """Returns an explanation with what Kubeflow's UI shows, and without values of columns."""
    if explanation is None:
        return None
    return explanation.model_copy(update={"importances": [], "effects": []})


def _pod_settings(config: PipelineConfig) -> PodSettings | None:
    """Returns the settings of a training cluster's pods, or None if the config has no cluster."""
    if config.train.cluster_or_default.launcher != "kubernetes":
        return None
    kubeflow = settings_of(config)
    assert kubeflow.image is not None  # noqa: S101 - checked when the pipeline was compiled
    return PodSettings(
        image=kubeflow.image,
        service_account=kubeflow.service_account,
        image_pull_secrets=kubeflow.image_pull_secrets,
        volume=kubeflow.volume,
        environment=variables_of(config),
        secrets=kubeflow.secrets,
        resources={task: kubeflow.resources_of(task) for task in TASKS},
    )
