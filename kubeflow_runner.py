"""Runs a config on Kubeflow Pipelines: compiles, submits, follows and schedules runs."""

from __future__ import annotations

import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # The imports take a second, and Ctrl-C must show no traceback then. Later `run_app` handles it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    import typer
except ModuleNotFoundError:
    sys.exit("Scopeline is not installed here: run `make setup`, then use .venv/bin/python")

from pydantic import TypeAdapter, ValidationError

from pipeline.cli import kubeflow as commands
from pipeline.cli.help import App
from pipeline.cli.options import (
    ConfigGroup,
    ConfigOption,
    PrintVersionOption,
    SetOption,
    find_modules_here,
    flag,
    run_app,
)
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.api import recurring
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.api.steps import LogReader
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import Parameters
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.kubeflow.run_parameters import parse_parameters
from trainer_module.errors import ConfigError
from trainer_module.settings.durations import SomeTime
from trainer_module.typed_words import remember_program

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
    commands.compile_to_file(_load(config, overrides), output, allow_latest)


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
    kubeflow, compiled = commands.connect_and_compile(loaded, allow_latest)
    raise typer.Exit(commands.submit(kubeflow, loaded, compiled, values, polling))


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
    commands.show_status(_connect(loaded), loaded, run)


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
    commands.terminate(_connect(_load(config, overrides)), run)


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
    # The import is here, because only this command needs this module.
    from pipeline.kubeflow.data_check import check as check_data

    loaded = _load(config, overrides)
    kubeflow = _connect(loaded)

    def submit(parameters: Parameters) -> str:
        version = kubeflow.ensure_version(commands.compile_checked(loaded, allow_latest))
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
    kubeflow, compiled = commands.connect_and_compile(loaded, allow_latest)
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
    commands.print_manifest(_load(config, overrides), config, overrides)


@schedule_app.command("remove", epilog=_GUIDE)
def remove_schedule(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
    dry_run: DryRunOption = False,
) -> None:
    """Delete the recurring runs; started runs continue."""
    loaded = _load(config, overrides)
    recurring.remove(_connect(loaded), loaded, dry_run, typer.echo)


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


def main() -> None:
    """Runs the command line; scopeline_programs.py calls this function."""
    remember_program()
    run_app(app)


if __name__ == "__main__":
    main()
