"""Implements the commands of `kubeflow_runner.py`."""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import TypeAdapter, ValidationError

from pipeline.cli.help import App
from pipeline.cli.options import (
    ConfigGroup,
    ConfigOption,
    PrintVersionOption,
    SetOption,
    find_modules_here,
    flag,
)
from pipeline.config.settings import PipelineConfig
from pipeline.config.yaml_core import ConfigDumper
from pipeline.exit_codes import EXIT_INTERRUPTED, EXIT_PUSHED
from pipeline.kubeflow.api import recurring
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.api.follower import Follower
from pipeline.kubeflow.api.steps import ENDED, LogReader, read_steps
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import CompiledPipeline, Parameters
from pipeline.kubeflow.data_check import check as check_data
from pipeline.kubeflow.data_check import make_check_manifest
from pipeline.kubeflow.image import check_image
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.kubeflow.run_parameters import parse_parameters
from pipeline.runs.console import RunConsole, show_path
from pipeline.runs.logs import redirected_output, shortened_errors
from trainer_module.errors import ConfigError, InternalError, ScopelineError
from trainer_module.settings.durations import SomeTime
from trainer_module.typed_words import typed_kubeflow_command

_GUIDE = "Guide: docs/kubeflow.md"

app = App(
    cls=ConfigGroup,
    name="scopeline-kubeflow",
    epilog=_GUIDE,
    no_args_is_help=True,
)
schedule_app = App(
    help="Run a pipeline at cron times, or when new data arrives.",
    epilog=_GUIDE,
    no_args_is_help=True,
)
app.add_typer(schedule_app, name="schedule")

LatestOption = Annotated[bool, flag("--allow-latest", "Accept an image with the tag `latest`.")]
DryRunOption = Annotated[bool, flag("--dry-run", "Only show the changes.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The id of the run.")]


@app.callback()
def options(prints_version: PrintVersionOption = False) -> None:
    """Compile, submit, follow and schedule runs on Kubeflow Pipelines."""


@app.command("compile", epilog=_GUIDE)
def compile_(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Write this file.")
    ] = Path("pipeline.yaml"),
    allow_latest: LatestOption = False,
) -> None:
    """Write the pipeline file for Kubeflow Pipelines.

    Equal configs give byte-identical files. The image in `kubeflow.image` needs a fixed tag.

    Example: scopeline-kubeflow compile --config my.yaml --output pipeline.yaml

    Exit codes: 0 the file is written, 1 compiling failed, 2 the config is unusable.
    """
    loaded = _load(config, overrides)
    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}")
    compiled = _compile_checked(loaded, allow_latest)
    scratch = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        scratch.write_text(compiled.yaml)
        scratch.replace(output)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise ConfigError(f"{output}: cannot be written ({error.strerror})") from None
    typer.echo(f"written to {show_path(output)}: {compiled.version}, {len(compiled.steps)} steps")


@app.command(epilog=_GUIDE)
def submit(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
    parameters: Annotated[
        list[str],
        typer.Option(
            "--parameter",
            metavar="NAME=VALUE",
            help="Set epochs, strategy or span of the run; repeatable.",
        ),
    ] = [],  # noqa: B006
    no_wait: Annotated[bool, flag("--no-wait", "Exit once the run has started.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Follow the run for at most this time, such as 4h."),
    ] = None,
    allow_latest: LatestOption = False,
) -> None:
    """Run a pipeline on Kubeflow, and follow the run.

    Ctrl-C ends the command; the run continues.

    Example: scopeline-kubeflow submit --config my.yaml --parameter epochs=5

    Exit codes: 0 a model was pushed, 1 a component failed, 2 the config or the data is unusable, 3
    the model was not blessed, 4 the blessed model was not pushed, 75 Kubeflow is unreachable, 130
    interrupted.
    """
    polling = None if no_wait else Polling(timeout=_seconds(timeout))
    loaded = _load(config, overrides)
    values = parse_parameters(loaded, parameters)
    kubeflow, compiled = _connect_and_compile(loaded, allow_latest)
    raise typer.Exit(run_and_follow(kubeflow, loaded, compiled, values, polling))


@app.command(epilog=_GUIDE)
def status(
    config: ConfigOption,
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The id of the run.", show_default="the latest run"),
    ] = None,
    overrides: SetOption = [],  # noqa: B006
) -> None:
    """Show the steps of a run with their states.

    Example: scopeline-kubeflow status --config my.yaml
    """
    loaded = _load(config, overrides)
    kubeflow = _connect(loaded)
    found = kubeflow.run(run or _latest_run(kubeflow, loaded))
    now = datetime.now(UTC)
    created = f", created {found.created_at:%Y-%m-%d %H:%M:%S} UTC" if found.created_at else ""
    typer.echo(
        f"{found.display_name}, run {found.run_id}: {(found.state or 'PENDING').lower()}{created}"
    )
    steps = read_steps(found)
    width = max(map(len, steps), default=0)
    for step in steps.values():
        typer.echo(f"  {step.name:<{width}}  {step.state.lower():<9}  {step.seconds(now):7.0f} s")
    if not steps:
        typer.echo("  no step has begun")


@app.command(epilog=_GUIDE)
def logs(
    config: ConfigOption,
    run: RunArgument,
    step: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show only this step, such as trainer.")
    ] = None,
    follow: Annotated[bool, flag("--follow", "Follow the logs until the run has ended.")] = False,
    overrides: SetOption = [],  # noqa: B006
) -> None:
    """Show the logs of the steps of a run.

    Example: scopeline-kubeflow logs RUN --config my.yaml --step trainer --follow
    """
    reader = LogReader(_connect(_load(config, overrides)), run, step, _write)
    reader.read(Polling() if follow else None)


@app.command(epilog=_GUIDE)
def terminate(
    config: ConfigOption,
    run: RunArgument,
    overrides: SetOption = [],  # noqa: B006
) -> None:
    """Stop a run; the results of finished steps are kept."""
    kubeflow = _connect(_load(config, overrides))
    state = kubeflow.run(run).state
    if state in ENDED:
        raise ConfigError(f"the run {run} has ended already: {state.lower()}")
    kubeflow.terminate(run)
    typer.echo(f"the run {run} is being terminated; the results of finished steps are kept")


@app.command(epilog=_GUIDE)
def check(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
    once: Annotated[
        bool, flag("--once", "Submit the run if it is due, and record the decision.")
    ] = False,
    allow_latest: LatestOption = False,
) -> None:
    """Check whether new data makes a run due.

    Run this command where the volume is mounted, as the CronJob of `schedule manifest` does.
    Kubeflow's recurring runs handle the cron times.
    """
    loaded = _load(config, overrides)
    kubeflow = _connect(loaded)

    def submit(parameters: Parameters) -> str:
        version = kubeflow.ensure_version(_compile_checked(loaded, allow_latest))
        return kubeflow.start_run(version, parameters)

    typer.echo(check_data(loaded, kubeflow, submit, once, datetime.now().astimezone()))


@schedule_app.command("apply", epilog=_GUIDE)
def apply_schedule(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
    dry_run: DryRunOption = False,
    allow_latest: LatestOption = False,
) -> None:
    """Create or update the recurring run of `schedule.cron`.

    Shows the differences first. Runs do not overlap, and after a pause only the latest missed run
    starts. If the command is interrupted, run it again.
    """
    loaded = _load(config, overrides)
    recurring.cron_for_kubeflow(loaded)
    kubeflow, compiled = _connect_and_compile(loaded, allow_latest)
    recurring.apply(kubeflow, loaded, compiled, dry_run, typer.echo)


@schedule_app.command("list", epilog=_GUIDE)
def list_schedule(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
) -> None:
    """Show the recurring runs of the pipeline."""
    loaded = _load(config, overrides)
    recurring.show(_connect(loaded), loaded, typer.echo)


@schedule_app.command("manifest", epilog=_GUIDE)
def write_manifest(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
) -> None:
    """Print the CronJob that looks for new data.

    Example: scopeline-kubeflow schedule manifest --config my.yaml | kubectl apply -f -
    """
    loaded = _load(config, overrides)
    text = config.read_text(encoding="utf-8")
    if overrides:
        values = loaded.model_dump(mode="json", by_alias=True, exclude_unset=True)
        text = yaml.dump(values, Dumper=ConfigDumper, sort_keys=False)
    typer.echo(make_check_manifest(loaded, text), nl=False)


@schedule_app.command("remove", epilog=_GUIDE)
def remove_schedule(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
    dry_run: DryRunOption = False,
) -> None:
    """Delete the recurring runs; started runs continue."""
    loaded = _load(config, overrides)
    recurring.remove(_connect(loaded), loaded, dry_run, typer.echo)


def _connect_and_compile(
    config: PipelineConfig, allow_latest: bool
) -> tuple[Kubeflow, CompiledPipeline]:
    """Returns a client and the compiled pipeline; checks the image before it calls Kubeflow.

    Raises:
      ConfigError: the image or another key of the config cannot be used, or Kubeflow cannot be
        reached.
      InternalError: compiling failed.
    """
    warnings = check_image(settings_of(config).image or "", allow_latest)
    kubeflow = Kubeflow(settings_of(config))
    _warn(warnings)
    return kubeflow, _compile_quietly(config)


def _compile_checked(config: PipelineConfig, allow_latest: bool) -> CompiledPipeline:
    """Checks the image, and compiles the config; raises as `_connect_and_compile` does."""
    _warn(check_image(settings_of(config).image or "", allow_latest))
    return _compile_quietly(config)


def run_and_follow(
    kubeflow: Kubeflow,
    config: PipelineConfig,
    compiled: CompiledPipeline,
    parameters: Parameters,
    polling: Polling | None,
) -> int:
    """Starts a run, and follows it to its end.

    Args:
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


def _latest_run(kubeflow: Kubeflow, config: PipelineConfig) -> str:
    """Returns the id of the pipeline's latest run."""
    for run in kubeflow.runs_of(config):
        return str(run.run_id)
    experiment = settings_of(config).experiment
    raise ConfigError(
        f"{kubeflow.endpoint}: `{config.name}` has not run in the experiment `{experiment}`"
    )


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


def _load(path: Path, overrides: list[str]) -> PipelineConfig:
    """Loads a config for Kubeflow; the user's modules are imported from the working directory."""
    find_modules_here()
    return load_for_kubeflow(path, overrides)


def _connect(config: PipelineConfig) -> Kubeflow:
    return Kubeflow(settings_of(config))


def _seconds(duration: str | None) -> float | None:
    if duration is None:
        return None
    try:
        return TypeAdapter(SomeTime).validate_python(duration).total_seconds()
    except ValidationError as error:
        raise ConfigError(f"--timeout {duration}: {error.errors()[0]['ctx']['error']}") from None


def _write(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
