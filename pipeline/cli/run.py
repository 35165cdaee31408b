"""Implements `scopeline run`, `tune` and `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    VerboseOption,
    flag,
    load_here,
    quiet_console,
)
from pipeline.component_ids import ComponentId
from pipeline.config.sections.push import Approve
from pipeline.config.settings import PipelineConfig
from pipeline.data.fetching import addresses_to_fetch
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import check_store
from pipeline.run_context import BY_HAND, RunRequest, resolve_run
from pipeline.runs.run import RunEnd, check_new_data, run_pipeline
from pipeline.versions.hold import read_hold
from pipeline.versions.retention import find_expired


def run_file(
    path: Path, overrides: list[str], output: Path, verbose: bool, request: RunRequest
) -> RunEnd:
    """Runs the pipeline of a config file; raises ScopelineError as `run_pipeline` does."""
    return run_pipeline(load_here(path, overrides), output, verbose, request)


def run(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    through: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Train on spans up to this date, hour or number.",
            show_default="the newest",
        ),
    ] = None,
    validate_only: Annotated[
        bool, flag("--validate-only", "Check the data only; train nothing.")
    ] = False,
    because: Annotated[
        str, typer.Option(metavar="TEXT", help="Record this reason in the history.")
    ] = BY_HAND,
    force: Annotated[bool, flag("--force", "Run even if nothing has changed.")] = False,
) -> None:
    """Run a pipeline from the data to a pushed model.

    Reuses the results of components whose inputs and settings have not changed.

    Example: scopeline run --config my.yaml --set train.epochs=3

    Exit codes: 0 a model was pushed, or nothing has changed; 1 a component failed; 2 the config or
    the data is unusable; 3 the model was not blessed; 4 the blessed model was not pushed; 75 try
    again later.
    """
    request = RunRequest(because, through, validate_only, force=force)
    raise typer.Exit(run_file(config, overrides, output, verbose, request).exit_code)


def tune(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
) -> None:
    """Search for better hyperparameters.

    Prints the best values of `model` and `train` as YAML; the next `run` trains with them. An
    interrupted search resumes. If the config has no section `tune`, the search takes 10 minutes.

    Example: scopeline tune --config my.yaml

    Exit codes: 0 done, 1 the search failed, 2 the config or the data is unusable.
    """
    settings = load_here(config, overrides)
    if settings.tune is None:
        settings = load_here(config, [*overrides, "tune=auto"])
    request = RunRequest(search_only=True)
    raise typer.Exit(run_pipeline(settings, output, verbose, request).exit_code)


def plan(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
) -> None:
    """Show what a run would do, without running it.

    Lists each component as `runs` or `cached`, with the reason.

    Example: scopeline plan --config my.yaml
    """
    show_plan(load_here(config, overrides), output, verbose)


def show_plan(config: PipelineConfig, output: Path, verbose: bool) -> None:
    """Shows what a run would do: a line per component and per column, with reasons.

    Raises:
      DataError: the data is unusable, so a run would fail.
    """
    layout = Layout.of(config.name, config.push, output)
    check_store(config.metadata, layout)
    with quiet_console(verbose) as console:
        console.print(f"[bold]{config.name}[/bold]: what a run would do now")
        from pipeline.runs.columns import plan_columns
        from pipeline.runs.plan import make_plan
        from pipeline.runs.training import model_note, training_notes

        runs, trains, pushes, notes = 0, False, False, list[str]()
        for component in make_plan(config, layout):
            runs += component.runs
            action = "[green]runs  [/green]" if component.runs else "[cyan]cached[/cyan]"
            console.print(f"  {component.name:<16}  {action}  {escape(component.reason)}")
            trains |= component.runs and component.name == ComponentId.TRAINER
            pushes = component.runs and component.name == ComponentId.PUSHER
        context = resolve_run(config, layout)
        check_new_data(context)
        columns = plan_columns(context) if config.family.has_label else None
        for line in columns.lines() if columns else ():
            console.print(line, markup=False)
        notes += context.window.notes if context.window else ()
        notes += columns.notes if columns else ()
        notes += [f"a run would fetch {address}" for address in addresses_to_fetch(config)]
        if trains:
            types = columns.choices if columns else {}
            if config.family.has_label:
                notes += model_note(config, types)
            notes += training_notes(config.train)
        if (hold := read_hold(layout)) is not None:
            notes.append(f"{hold}; a blessed model would wait")
        elif config.push.approve is Approve.MANUAL:
            notes.append("push.approve is manual: a blessed model would wait for `approve`")
        expired = find_expired(config.schedule, layout, EventLog(layout.event_log), 1, int(pushes))
        if expired:
            if_pushed = ", if the model is pushed" if pushes and expired.versions else ""
            notes.append(f"the run would delete {expired} (schedule.keep){if_pushed}")
        for note in notes:
            console.print(f"note: {escape(note)}")
        if not runs:
            console.print("\nnothing to do: a run would change nothing")
