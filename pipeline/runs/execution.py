"""Executes a pipeline's components and records the outcome of each."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

from components.beam_workers.options import limit_workers
from components.beam_workers.runner import note_cores
from components.example_validator.verdict import schema_command
from components.processes.stopping import attempt, received_signal
from pipeline.component_ids import ComponentId
from pipeline.exit_codes import EXIT_INTERRUPTED
from pipeline.graph.create import create_ingestion, create_pipeline, create_search
from pipeline.layout import Layout, RunLayout
from pipeline.records.data_records import report_empty_spans
from pipeline.records.event_log import EventLog
from pipeline.records.notify import wait_for_deliveries
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import RunSummary
from pipeline.run_context import RunContext, RunRequest
from pipeline.runs.artifact_results import ArtifactResults
from pipeline.runs.console import RunConsole, show_path
from pipeline.runs.costs import CostMeter
from pipeline.runs.imports import shared_module_path
from pipeline.runs.local import LocalRunner
from pipeline.runs.observer import RunObserver
from pipeline.runs.plan import make_plan
from pipeline.runs.push_gate import PushGate
from pipeline.runs.reruns import Reruns
from pipeline.runs.training import prepare_training
from pipeline.runs.window_reader import WindowReader, describe_left_out, make_spans
from pipeline.versions.retention import Retention
from trainer_module.runtime import PROGRESS_LOGGER


def execute(
    context: RunContext,
    request: RunRequest,
    files: RunLayout,
    console: RunConsole,
    reruns: Reruns,
) -> int:
    """Runs the components, keeps `summary.json` current, and shows the outcome.

    Args:
      context: the context of the run, whose stores have been checked.
      reruns: the record of the state after the run, for the next run.

    Returns:
      The exit code.
    """
    config, layout = context.config, context.layout
    event_log, run_id, data = EventLog(layout.event_log), files.root.name, list(context.data)
    run_events = RunEvents(event_log, config, run_id, data, request.reason)
    results = ArtifactResults(context.connection, config, event_log)
    observer = RunObserver(context, files, console, run_events, results)
    meter = CostMeter()
    progress = logging.getLogger(PROGRESS_LOGGER)

    def conclude_interrupted() -> None:
        observer.conclude(KeyboardInterrupt())
        console.conclude(observer.summary, _hints(observer.summary, layout, files))
        wait_for_deliveries()

    progress.addHandler(console)
    error = attempt(
        lambda: _run_components(context, request, run_events, observer, console, results, meter),
        conclude_interrupted,
        EXIT_INTERRUPTED,
    )
    progress.removeHandler(console)
    if error is None and not observer.summary.components:
        # TFX's command line has only compiled the pipeline, with a runner that runs no component.
        shutil.rmtree(files.root)
        return 0
    if (signal_name := received_signal()) and error is None:
        observer.summary.notes.append(f"{signal_name} arrived after the last component had ended")
    observer.conclude(error)
    if signal_name is None:
        retention = Retention(config.schedule, config.drift, config.metadata, layout, event_log)
        observer.note(retention.delete_expired())
    report = observer.report(meter.costs)
    console.conclude(observer.summary, [*_hints(observer.summary, layout, files), report])
    if received_signal() is None:
        reruns.keep(observer.summary, lambda: any(c.runs for c in make_plan(config, layout)))
    return observer.summary.status.exit_code


def _run_components(
    context: RunContext,
    request: RunRequest,
    run_events: RunEvents,
    observer: RunObserver,
    console: RunConsole,
    results: ArtifactResults,
    meter: CostMeter,
) -> None:
    """Reads the new spans, and runs the graph with the observer."""
    config, window, run_id = context.config, context.window, observer.summary.run_id
    for note in [*prepare_training(config.train), *note_cores(config.beam.workers)]:
        console.write(f"  note: {note}")
        observer.summary.notes.append(note)
    spans = None
    if window is not None:
        event_log = EventLog(context.layout.event_log)
        report_empty_spans(config.notify, config.name, window.empty, event_log, run_id)
        reader = WindowReader(context, event_log, run_events, run_id)
        usable = [window.newest] if request.validate_only else reader.read(window, console)
        observer.summary.notes += reader.notes
        spans = make_spans(usable, config.drift, event_log)
        if not request.validate_only:
            observer.summary.notes += describe_left_out(window, usable, event_log)
    create = create_search if request.search_only else create_pipeline
    create = create_ingestion if request.validate_only else create
    # Without `beam.args`, Beam starts no processes that need the variables.
    module_path = shared_module_path() if config.beam.args else nullcontext()
    with module_path, limit_workers(config.beam.workers):
        gate = PushGate(context, results, observer.summary)
        LocalRunner(run_id, observer, gate, meter.measure).run(create(context, spans))
    observer.restore_served_version()


def _hints(summary: RunSummary, layout: Layout, files: RunLayout) -> list[str]:
    """Returns hints for further details, such as paths of logs."""
    hints = [f"summary: {show_path(files.summary)}"]
    if summary.anomalies:
        hints.insert(0, f"if the data is correct: {schema_command()}")
    if summary.error is not None:
        hints = [f"full output: {show_path(files.log)}"]
        if any(c.state.has_result for c in summary.components):
            hints.append("the next run continues after the finished components")
    elif summary.training:
        tensorboard = show_path(Path(sys.executable).parent / "tensorboard")
        logs = show_path(layout.pipeline_root / ComponentId.TRAINER)
        hints.append(f"learning curves: {shlex.join([tensorboard, '--logdir', logs])}")
    return hints
