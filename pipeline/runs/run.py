"""Runs a pipeline on this machine, from a checked config to an exit code.

The data is checked before TFX is imported. A run that would fail at ExampleGen therefore fails at
once, and is recorded like any other failed run.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from components.compat.older_linux import needs_relaxing
from components.example_gen.checks.report import MIN_ROWS
from components.example_gen.sources.surveys import read_known_kinds
from components.named_columns import check_named_columns
from components.processes.local.fork_server import run_fork_server
from components.processes.stopping import ignore_signals
from pipeline.component_ids import ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.data.fetching import fetch_and_check_weights
from pipeline.layout import Layout, RunLayout, new_run_id
from pipeline.lock import run_lock
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata_store import check_store
from pipeline.records.notify import check_secrets, deliveries
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, State, Status
from pipeline.run_context import RunContext, RunRequest, resolve_run
from pipeline.runs.console import RunConsole, show_path
from pipeline.runs.imports import defer_components, frozen_imports, is_in_tfx_command_line
from pipeline.runs.logs import older_linux_error, redirected_output, shortened_errors
from pipeline.runs.observer import RunObserver, RunResults
from pipeline.runs.reruns import Reruns
from trainer_module.errors import ConfigError, DataError
from trainer_module.scratch import own_temporary_files
from trainer_module.tf_config import read_tf_config
from trainer_module.typed_words import typed_kubeflow_program


@dataclass(frozen=True)
class RunEnd:
    """The end of a run."""

    exit_code: int
    folder: Path
    """The folder of the run or, if the run would only repeat the last run, of that run."""


def check_new_data(context: RunContext) -> None:
    """Checks the data that ExampleGen will read, unless the last run has read the same data.

    Raises:
      DataError: the data cannot be used.
    """
    # The check needs a label, which the rows of some families lack.
    if not context.config.family.has_label:
        return
    if _has_been_read(context):
        # The report has no effect on the data, so its columns may have changed since.
        known = read_known_kinds(context.reading.schema_file)
        check_named_columns(context.config.private_columns if known else {}, known)
        return
    # The import is here, because commands that read no data do not need Arrow.
    from pipeline.data.first_look import check_local_data

    has_globs = any(isinstance(share, str) for share in context.config.data.splits.values())
    # The newest of several spans may be small.
    min_rows = 0 if has_globs or len(context.data) > 1 else MIN_ROWS
    columns = context.config.all_named_columns
    check_local_data(context.reading, columns, context.data[-1], min_rows)


def _has_been_read(context: RunContext) -> bool:
    """Returns whether the last successful run has read the same files with the same config."""
    last = EventLog(context.layout.event_log).last(EventKind.FINISHED)
    if last is None or last.details["config"] != context.config.fingerprint:
        return False
    span = context.data[-1]
    recorded = last.details["spans"].get(str(span.number), {})
    return recorded.get("signature") == span.signature


def refuse(
    context: RunContext,
    request: RunRequest,
    files: RunLayout,
    console: RunConsole,
    error: DataError,
) -> int:
    """Records and shows why a run did not begin; returns its exit code.

    Args:
      error: the problem of the data.
    """
    observer = _make_observer(context, request, files, console)
    name = ComponentId.EXAMPLE_GEN.value
    observer.started(name)
    observer.finished(name, State.FAILED, 0.0, None)
    message = ErrorSummary(component=name, message=str(error), log=str(files.log))
    return _settle(observer, Status.after(error), message, files, console)


def stop(context: RunContext, request: RunRequest, files: RunLayout, console: RunConsole) -> int:
    """Records and shows that a run was stopped before a component began; returns its exit code."""
    ignore_signals()  # The first signal is being handled already.
    observer = _make_observer(context, request, files, console)
    message = ErrorSummary(component=None, message="interrupted", log=str(files.log))
    return _settle(observer, Status.INTERRUPTED, message, files, console)


def _make_observer(
    context: RunContext, request: RunRequest, files: RunLayout, console: RunConsole
) -> RunObserver:
    event_log, config = EventLog(context.layout.event_log), context.config
    data, reason = list(context.data), request.reason
    run_events = RunEvents(event_log, config, files.root.name, data, reason)
    return RunObserver(context, files, console, run_events, RunResults())


def _settle(
    observer: RunObserver,
    status: Status,
    error: ErrorSummary,
    files: RunLayout,
    console: RunConsole,
) -> int:
    observer.settle(status, error)
    hints = [f"summary: {show_path(files.summary)}", observer.report()]
    console.conclude(observer.summary, hints)
    return status.exit_code


@deliveries()
def run_pipeline(
    config: PipelineConfig,
    output: Path,
    verbose: bool = False,
    request: RunRequest = RunRequest(),  # noqa: B008 - the object is frozen
) -> RunEnd:
    """Runs a pipeline and shows it on the screen.

    If the run would only repeat the last run, the function prints a message and returns without
    importing TFX.

    Returns:
      The folder of the run and the exit code: 0 pushed (or validated, if requested), 1 a component
      failed, 2 the data is unusable, 3 not blessed, 4 blessed but not pushed, 130 stopped. If the
      run would only repeat the last run, those of the last run.

    Raises:
      TryLaterError: another run of the pipeline is in progress, or the metadata server is
        unreachable.
      ConfigError: the output folder, TF_CONFIG or published weights cannot be used, or a library
        does not load on this Linux.
      DataError: there is no data at the config's path.
      InternalError: the run failed outside of its components.
    """
    read_tf_config(os.environ)  # Raises now if TF_CONFIG is invalid.
    if needs_relaxing():
        raise older_linux_error()
    if config.train.cluster_or_default.launcher != "local":
        raise ConfigError(
            "train.cluster.launcher: `kubernetes` is for a pipeline on Kubeflow, see "
            f"`{typed_kubeflow_program()}`; to run on this machine: "
            "--set train.cluster.launcher=local"
        )
    check_secrets(config.notify)
    layout = Layout.of(config.name, config.push, output)
    with run_lock(layout):
        check_store(config.metadata, layout)
        fetch_and_check_weights(config, RunConsole(sys.stdout).write)
        context = resolve_run(config, layout, request)
        reruns = Reruns(context)
        may_skip = request.may_be_skipped and not is_in_tfx_command_line()
        if may_skip and (last := reruns.repeated()) is not None:
            RunConsole(sys.stdout).write(f"{config.name}: {last}")
            return RunEnd(last.exit_code, layout.run(last.run).root)
        files = layout.run(new_run_id())
        files.root.mkdir(parents=True)
        failure = "The run could not be executed"
        with (
            redirected_output(files.log, verbose) as stream,
            shortened_errors(failure, files.log),
            own_temporary_files(),
        ):
            reruns.forget()
            console = RunConsole(stream, verbose)
            title = f"{config.name}, run {files.root.name}"
            console.begin(title if context.window is None else f"{title}, {context.window}")
            try:
                console.started("checking the data")
                try:
                    check_new_data(context)
                except DataError as error:
                    code = refuse(context, request, files, console, error)
                    return RunEnd(code, files.root)
                console.started("starting TFX")
                # The import is here: the checks above do not need TensorFlow, and the output of
                # TensorFlow goes to the log.
                with frozen_imports():
                    defer_components()
                    from pipeline.runs.execution import execute

                console.stop()  # The thread of the bar would not survive a fork.
                with run_fork_server():
                    console.started("starting TFX")
                    code = execute(context, request, files, console, reruns)
                    return RunEnd(code, files.root)
            except KeyboardInterrupt:
                return RunEnd(stop(context, request, files, console), files.root)
            finally:
                console.stop()
