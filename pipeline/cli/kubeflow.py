"""Implements the commands of `kubeflow_runner.py`."""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import typer
import yaml

from pipeline.config.settings import PipelineConfig
from pipeline.config.yaml_core import ConfigDumper
from pipeline.exit_codes import EXIT_INTERRUPTED, EXIT_PUSHED
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.api.follower import Follower
from pipeline.kubeflow.api.steps import ENDED, read_steps
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import CompiledPipeline, Parameters
from pipeline.kubeflow.data_check import make_check_manifest
from pipeline.kubeflow.image import check_image
from pipeline.runs.console import RunConsole, show_path
from pipeline.runs.logs import redirected_output, shortened_errors
from trainer_module.errors import ConfigError, InternalError, ScopelineError
from trainer_module.typed_words import typed_kubeflow_command


def connect_and_compile(
    config: PipelineConfig, allow_latest: bool
) -> tuple[Kubeflow, CompiledPipeline]:
    """Returns a client and the compiled pipeline; checks the image before it calls Kubeflow.

    Raises:
      ConfigError: the image or another key of the config cannot be used, or Kubeflow cannot be
        reached.
      InternalError: compiling failed.
    """
    warnings = _check_image(config, allow_latest)
    kubeflow = Kubeflow(settings_of(config))
    _warn(warnings)
    return kubeflow, _compile_quietly(config)


def compile_checked(config: PipelineConfig, allow_latest: bool) -> CompiledPipeline:
    """Checks the image, and compiles the config; raises as `connect_and_compile` does."""
    _warn(_check_image(config, allow_latest))
    return _compile_quietly(config)


def compile_to_file(config: PipelineConfig, output: Path, allow_latest: bool) -> None:
    """Writes the file that Kubeflow runs; raises as `connect_and_compile` does."""
    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}")
    compiled = compile_checked(config, allow_latest)
    scratch = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        scratch.write_text(compiled.yaml)
        scratch.replace(output)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise ConfigError(f"{output}: cannot be written ({error.strerror})") from None
    typer.echo(f"written to {show_path(output)}: {compiled.version}, {len(compiled.steps)} steps")


def submit(
    kubeflow: Kubeflow,
    config: PipelineConfig,
    compiled: CompiledPipeline,
    parameters: Parameters,
    polling: Polling | None,
) -> int:
    """Starts a run, and follows it to its end.

    Args:
      kubeflow: the client.
      config: the config of the run.
      compiled: the compiled pipeline of the config.
      parameters: the checked run parameters that differ from their defaults.
      polling: how to follow the run; None to return once the run has started.

    Returns:
      The exit code of the run, with the same codes as a local run, or 0 if the run is not followed.

    Raises:
      ConfigError: Kubeflow refuses a call.
      InternalError: Kubeflow failed, or was unreachable for too long.
    """
    version = kubeflow.ensure_version(compiled)
    run = kubeflow.start_run(version, parameters)
    console = RunConsole(sys.stdout)
    upload = "uploaded" if version.is_new else "uploaded before"
    console.begin(f"{config.name}, run {run} on {kubeflow.endpoint}, {version.name} ({upload})")
    status = typed_kubeflow_command(f"status {run}")
    if polling is None:
        typer.echo(f"the run continues; to see its state: {status}")
        return EXIT_PUSHED
    follower = Follower(kubeflow, compiled, run, console, polling)
    try:
        state = follower.follow()
        return follower.show_outcome(
            state, [f"to see all logs: {typed_kubeflow_command(f'logs {run}')}"]
        )
    except KeyboardInterrupt:
        console.stop()
        terminate = typed_kubeflow_command(f"terminate {run}")
        typer.echo(f"the run continues; to see its state: {status}\nto stop the run: {terminate}")
        return EXIT_INTERRUPTED
    except ScopelineError as error:
        raise InternalError(f"{error}\nthe run continues; to see its state: {status}") from None
    finally:
        console.stop()


def show_status(kubeflow: Kubeflow, config: PipelineConfig, run_id: str | None) -> None:
    """Shows the state and the duration of a run's steps.

    Args:
      kubeflow: the client.
      config: the config of the pipeline.
      run_id: the run's id, or None for the pipeline's latest run.

    Raises:
      ConfigError: there is no such run.
    """
    run = kubeflow.run(run_id or _latest_run(kubeflow, config))
    now = datetime.now(UTC)
    created = f", created {run.created_at:%Y-%m-%d %H:%M:%S} UTC" if run.created_at else ""
    typer.echo(f"{run.display_name}, run {run.run_id}: {(run.state or 'PENDING').lower()}{created}")
    steps = read_steps(run)
    width = max(map(len, steps), default=0)
    for step in steps.values():
        typer.echo(f"  {step.name:<{width}}  {step.state.lower():<9}  {step.seconds(now):7.0f} s")
    if not steps:
        typer.echo("  no step has begun")


def print_manifest(config: PipelineConfig, file: Path, overrides: list[str]) -> None:
    """Prints the CronJob that looks for new data; raises as `make_check_manifest` does."""
    text = file.read_text(encoding="utf-8")
    if overrides:
        values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
        text = yaml.dump(values, Dumper=ConfigDumper, sort_keys=False)
    typer.echo(make_check_manifest(config, text), nl=False)


def terminate(kubeflow: Kubeflow, run_id: str) -> None:
    """Stops a run, and prints a confirmation.

    Raises:
      ConfigError: there is no such run, or it has ended.
    """
    state = kubeflow.run(run_id).state
    if state in ENDED:
        raise ConfigError(f"the run {run_id} has ended already: {state.lower()}")
    kubeflow.terminate(run_id)
    typer.echo(f"the run {run_id} is being terminated; the results of finished steps are kept")


def _latest_run(kubeflow: Kubeflow, config: PipelineConfig) -> str:
    """Returns the id of the pipeline's latest run."""
    for run in kubeflow.runs_of(config):
        return str(run.run_id)
    experiment = settings_of(config).experiment
    raise ConfigError(
        f"{kubeflow.endpoint}: `{config.name}` has not run in the experiment `{experiment}`"
    )


def _check_image(config: PipelineConfig, allow_latest: bool) -> list[str]:
    return check_image(settings_of(config).image or "", allow_latest)


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def _compile_quietly(config: PipelineConfig) -> CompiledPipeline:
    """Compiles a config; TFX's output goes to a log file, which is kept if compiling fails."""
    descriptor, name = tempfile.mkstemp(prefix="scopeline-compile-", suffix=".log")
    os.close(descriptor)
    log, failure = Path(name), "The pipeline could not be compiled"
    try:
        with redirected_output(log, verbose=False) as stream, shortened_errors(failure, log):
            console = RunConsole(stream)
            console.started("compiling")
            try:
                from pipeline.kubeflow.compiler import compile_pipeline

                compiled = compile_pipeline(config)
            finally:
                console.stop()
    except InternalError:
        raise
    except BaseException:
        log.unlink()
        raise
    log.unlink()
    return compiled
