"""The first step of a run: checks data and stores, reads new spans, writes the run's record."""

from __future__ import annotations

import logging
import time

from tfx.orchestration.local import runner_utils

from pipeline.config.loading import check_rules
from pipeline.config.settings import PipelineConfig
from pipeline.data.fetching import fetch_and_check_weights
from pipeline.kubeflow.cluster_layout import cluster_layout, config_for_pods, run_root
from pipeline.kubeflow.compiled import Parameters
from pipeline.kubeflow.image import code_hash
from pipeline.kubeflow.nodes import compile_graph, values_of
from pipeline.kubeflow.run_parameters import apply_parameters
from pipeline.kubeflow.steps.run_record import BECAUSE, RunFolder, RunRecord, is_alone
from pipeline.layout import Layout
from pipeline.records.data_records import report_empty_spans
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import check_store
from pipeline.records.notify import check_secrets
from pipeline.records.run_events import RunEvents
from pipeline.run_context import RunContext, RunRequest, resolve_run
from pipeline.runs.console import RunConsole
from pipeline.runs.window_reader import WindowReader, describe_left_out, make_spans
from trainer_module.errors import ConfigError

logger = logging.getLogger(__name__)


def set_up_run(
    compiled_config: PipelineConfig,
    parameters: Parameters,
    run_id: str,
    code: str,
    console: RunConsole,
) -> None:
    """Checks the run, resolves its data, and writes the record for the other steps.

    A second attempt does nothing if the first attempt has written the record.

    Args:
      code: the hash of the code that compiled the pipeline.

    Raises:
      ConfigError: the config, a secret or the metadata cannot be used.
      DataError: there is no data, or the window has a gap.
      ComponentFailedError: an older span of the window cannot be read.
    """
    config = config_for_pods(apply_parameters(compiled_config, parameters))
    layout = cluster_layout(config)
    folder = RunFolder(run_root(layout), run_id)
    if RunRecord.read(folder) is not None:
        return
    notes = _compare_code(code)
    _make_output(layout)
    check_secrets(config.notify)
    fetch_and_check_weights(config, console.write)
    _check_config(config)
    check_store(config.metadata, layout)
    span = str(parameters["span"])
    request = RunRequest(BECAUSE, span or None, through_name="the parameter span,")
    context = resolve_run(config, layout, request)
    _make_record(context, run_id, notes, console).write(folder)


def _make_record(
    context: RunContext, run_id: str, notes: list[str], console: RunConsole
) -> RunRecord:
    """Reads the older new spans (ExampleGen reads the newest), and compiles the graph."""
    config, layout, window = context.config, context.layout, context.window
    began, event_log = time.time(), EventLog(layout.event_log)
    data = list(context.data)
    run_events = RunEvents(event_log, config, run_id, data, BECAUSE)
    run_events.record_start()
    spans, usable = None, data
    if window is not None:
        report_empty_spans(config.notify, config.name, window.empty, event_log, run_id)
        reader = WindowReader(context, event_log, run_events, run_id)
        usable = reader.read(window, console)
        spans = make_spans(usable, config.drift, event_log)
        left_out_notes = describe_left_out(window, usable, event_log)
        notes = [*notes, *window.notes, *reader.notes, *left_out_notes]
    graph = compile_graph(context, spans)
    deployment = runner_utils.extract_local_deployment_config(graph)
    nodes = values_of(graph)
    return RunRecord(
        config=config,
        because=BECAUSE,
        began=began,
        window=window,
        data=usable,
        states=run_events.states,
        notes=notes,
        ingestion=context.ingestion,
        location=context.location,
        is_alone=is_alone(config, layout, run_id),
        nodes=nodes,
        shown=[n for n in nodes if runner_utils.extract_executor_spec(deployment, n) is not None],
    )


def _check_config(config: PipelineConfig) -> None:
    """Checks files and parameters, which could not be checked when the pipeline was compiled.

    Raises:
      ConfigError: lists all problems.
    """
    problems = [str(problem) for problem in check_rules(config)]
    if problems:
        raise ConfigError("; ".join(problems))


def _compare_code(compiling_code: str) -> list[str]:
    """Returns a note if the image's code differs from the code that compiled the pipeline."""
    if compiling_code == code_hash():
        return []
    note = (
        "the code in the image differs from the code that compiled the pipeline; build the image "
        "again, or compile with the code in the image"
    )
    logger.warning(note)
    return [note]


def _make_output(layout: Layout) -> None:
    """Creates the pipeline's folder, and checks now that steps can write to the folder.

    Raises:
      ConfigError: the folder cannot be written.
    """
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        scratch = layout.root / ".writable"
        scratch.touch()
        scratch.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{layout.root}: the volume cannot be written ({error.strerror or error}); the image "
            "runs as user and group 1000, which must own the folder"
        ) from None
