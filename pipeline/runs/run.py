"""One run of a pipeline on this machine: from a checked config to an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from components.processes.local.fork_server import serving
from pipeline.config.settings import PipelineConfig
from pipeline.data.fetching import fetch_and_check_weights
from pipeline.layout import Layout, new_run_id
from pipeline.lock import one_at_a_time
from pipeline.records.metadata.store import check_store
from pipeline.records.notify import check_secrets, deliveries
from pipeline.run_context import RunRequest, resolve_run
from pipeline.runs.console import RunConsole
from pipeline.runs.imports import is_in_tfx_command_line, kept_imports
from pipeline.runs.logs import captured, told_briefly
from pipeline.runs.planning.first_look import look_at_new_data, refuse, stop
from pipeline.runs.reruns import Reruns
from trainer_module.errors import ConfigError, DataError
from trainer_module.scratch import own_temporary_files
from trainer_module.tf_config import read_tf_config


@deliveries()
def run_pipeline(
    config: PipelineConfig,
    output: Path,
    verbose: bool = False,
    request: RunRequest = RunRequest(),  # noqa: B008 - it does not change
) -> int:
    """Runs a pipeline and shows it on the screen.

    Where it would only repeat the last run, it says so instead, without importing TFX.

    Args:
      config: a checked config.
      output: the output folder.
      verbose: whether everything that components say is shown as well.
      request: why, up to which span, how far, and whether in any case.

    Returns:
      The exit code: 0 pushed (or validated, if that was asked for), 1 a component failed, 2 the
      data is unusable, 3 not blessed, 130 it was stopped; that of the last run where this one
      would repeat it.

    Raises:
      TryLaterError: another run of the pipeline is under way, or the metadata server is away.
      ConfigError: the output folder, TF_CONFIG or published weights cannot be used.
      DataError: there is no data where the config says.
      InternalError: the run broke outside of its components.
    """
    read_tf_config(os.environ)  # Refused now if it cannot be used.
    if config.train.cluster_or_default.launcher != "local":
        raise ConfigError(
            "train.cluster.launcher: kubernetes starts pods for a pipeline on Kubeflow, see "
            "kubeflow_runner.py; to run it here: --set train.cluster.launcher=local"
        )
    check_secrets(config.notify)
    layout = Layout.of(config.name, config.push, output)
    with one_at_a_time(layout):
        check_store(config.metadata, layout)
        fetch_and_check_weights(config, RunConsole(sys.stdout).write)
        context = resolve_run(config, layout, request)
        reruns = Reruns(context)
        is_asked = request.may_repeat and not is_in_tfx_command_line()
        if is_asked and (last := reruns.repeated()) is not None:
            RunConsole(sys.stdout).write(f"{config.name}: {last}")
            return last.exit_code
        files = layout.run(new_run_id())
        files.root.mkdir(parents=True)
        broken = "The run could not be executed"
        with (
            captured(files.log, verbose) as stream,
            told_briefly(broken, files.log),
            own_temporary_files(),
        ):
            reruns.forget()
            console = RunConsole(stream, verbose)
            title = f"{config.name}, run {files.root.name}"
            console.begin(title if context.window is None else f"{title}, {context.window}")
            try:
                console.started("looking at the data")
                try:
                    look_at_new_data(context)
                except DataError as error:
                    return refuse(context, request, files, console, error)
                console.started("starting TFX")
                # Imported only now: what needs no TensorFlow has been checked, and its chatter
                # goes to the log.
                with kept_imports():
                    from pipeline.runs.execution import execute

                console.stop()  # Its thread would not survive a fork.
                with serving():
                    console.started("starting TFX")
                    return execute(context, request, files, console, reruns)
            except KeyboardInterrupt:
                return stop(context, request, files, console)
            finally:
                console.stop()
