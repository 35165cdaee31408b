"""Scopeline on this machine: run a pipeline, see what a run would do, check the machine."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Imports take a second, in which Ctrl-C is to leave no traceback; then `run_app` sees to it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from pipeline.cli.early_signals import end_well, runs_until_stopped

if __name__ == "__main__" and runs_until_stopped(sys.argv[1:]):
    end_well()

try:
    import typer
except ModuleNotFoundError:
    sys.exit("Scopeline is not installed here: run `make setup`, then use .venv/bin/python")

from pipeline.cli.cluster import app as cluster_app
from pipeline.cli.doctor import show_findings
from pipeline.cli.evaluate import say_what_does_not_count, show_evaluation, show_metrics_of_rows
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigGroup,
    ConfigOption,
    ModelOption,
    OutputOption,
    SetOption,
    VariantOption,
    VerboseOption,
    VersionOption,
    flag,
    load_here,
    refuse_options_before,
    run_app,
)
from pipeline.cli.predict import asked_model, predict
from pipeline.cli.run import show_plan
from pipeline.cli.schedule import history, schedule
from pipeline.cli.schema import app as schema_app
from pipeline.cli.serve import serve
from pipeline.cli.skew import skew
from pipeline.cli.spans import app as spans_app
from pipeline.cli.versions import (
    approve_model,
    hold_pushes,
    release_pushes,
    roll_back_model,
    show_models,
    withdraw_model,
)
from pipeline.exit_codes import EXIT_UNUSABLE
from pipeline.run_context import BY_HAND, RunRequest
from pipeline.runs.run import run_pipeline
from pipeline.versions.rollback import RollbackRequest
from pipeline.versions.waiting import ApprovalRequest

app = typer.Typer(
    cls=ConfigGroup,
    name="scopeline",
    help=__doc__,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cluster_app, name="cluster")
app.add_typer(schema_app, name="schema")
app.add_typer(spans_app, name="spans")
app.command()(schedule)
app.command()(history)

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the history.")
]


@app.callback(invoke_without_command=True)
def default(
    context: typer.Context,
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
) -> None:
    """Without a command: run configs/digits.yaml."""
    if context.invoked_subcommand is None:
        raise typer.Exit(run_pipeline(load_here(config, overrides), output, verbose))
    refuse_options_before(context)


@app.command()
def run(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    through: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="The span to end at: a date, an hour or a number, not the newest."
        ),
    ] = None,
    validate_only: Annotated[
        bool, flag("--validate-only", "Read and check the data, and train nothing.")
    ] = False,
    because: Annotated[
        str, typer.Option(metavar="TEXT", help="Why there is a run, for its history.")
    ] = BY_HAND,
    force: Annotated[
        bool, flag("--force", "Run even if nothing has changed since the last run.")
    ] = False,
) -> None:
    """Run a pipeline: data in, a blessed model pushed.

    If nothing at all has changed since the last run, that is said, with its exit code. Components
    with nothing new to do are taken from the cache. Where the data comes in spans, only
    new ones are read. Exit code: 0 a model was pushed, 1 a component failed, 2 the config or the
    data is unusable, 3 the model was not blessed, 4 it was, and is held back or waits for approval,
    75 try again later: another run is under way, or the metadata server is away.
    """
    request = RunRequest(because, through, validate_only, force=force)
    raise typer.Exit(run_pipeline(load_here(config, overrides), output, verbose, request))


@app.command()
def tune(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
) -> None:
    """Search for better values of `model` and `train`, and print the lines for the YAML.

    Runs the pipeline as far as the search, which goes on where it was interrupted; `run` then
    trains with what was found. Without a section `tune` it searches by itself for 10 minutes. Exit
    code: 0 done, 1 the search failed, 2 the config or the data is unusable.
    """
    settings = load_here(config, overrides)
    if settings.tune is None:
        settings = load_here(config, [*overrides, "tune=auto"])
    request = RunRequest(search_only=True)
    raise typer.Exit(run_pipeline(settings, output, verbose, request))


@app.command()
def plan(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
) -> None:
    """Say what a run would do, what is cached and why, without running anything."""
    show_plan(load_here(config, overrides), output, verbose)


@app.command()
def evaluate(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    checkpoint: Annotated[
        str,
        typer.Option(metavar="latest|EPOCH", help="Which of the checkpoints that were kept."),
    ] = "latest",
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE|FOLDER|GLOB", help="Labelled rows, of files."),
    ] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    variant: VariantOption = None,
) -> None:
    """Evaluate a pushed version on labelled rows, or a checkpoint on the eval split.

    With --input: the config's metrics and slices of a version on rows that are read as in training.
    Without: a checkpoint of the last training is restored, which needs `train.checkpoints`. Exit
    code: 0 done, 2 there is no such version or checkpoint, or the rows cannot be used.
    """
    loaded = load_here(config, overrides)
    say_what_does_not_count(overrides, is_pushed=given is not None)
    if given is None:
        show_evaluation(loaded, output, checkpoint, verbose)
    else:
        asked = asked_model(loaded, output, model, version, variant)
        show_metrics_of_rows(loaded, asked, given, verbose)


app.command()(predict)
app.command()(serve)
app.command()(skew)


@app.command()
def models(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Show them for programs.")] = False,
    withdraw: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Mark a version that does not serve as bad."),
    ] = None,
    reason: ReasonOption = None,
) -> None:
    """List the pushed versions, newest first: which one serves, its data, strategy and metrics.

    A version that is withdrawn stays where it is, but no model is compared with it or begins from
    its weights again, and no rollback goes back to it.
    """
    if withdraw is not None:
        withdraw_model(load_here(config, overrides), output, withdraw, reason)
    else:
        show_models(load_here(config, overrides), output, as_json)


@app.command()
def rollback(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    to: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="The version to go back to; else the one before."),
    ] = None,
    reason: ReasonOption = None,
    force: Annotated[bool, flag("--force", "Also to a version that was withdrawn.")] = False,
    holds: Annotated[
        bool, flag("--hold", "And have runs push nothing from then on; see `hold`.")
    ] = False,
) -> None:
    """Put an earlier version in service, and withdraw those that came after it.

    A copy of it becomes the newest version, which is the one that model servers load. Interrupted
    at whatever moment, the old version serves or the new one; the same command then finishes.
    """
    roll_back_model(load_here(config, overrides), output, RollbackRequest(to, reason, force, holds))


@app.command()
def hold(
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is shown everywhere.")],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="When it ends by itself: 2026-01-05 or with a time."),
    ] = None,
    stops_runs: Annotated[bool, flag("--all", "Schedules start no runs either.")] = False,
) -> None:
    """Have runs train and evaluate, and push nothing, until `release`.

    A blessed model waits; its run ends with exit code 4. What is pushed already serves on.
    """
    hold_pushes(load_here(config, overrides), output, reason, until, stops_runs)


@app.command()
def release(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    reason: ReasonOption = None,
) -> None:
    """End a hold: runs push again, and `approve` pushes what was held back."""
    release_pushes(load_here(config, overrides), output, reason)


@app.command()
def approve(
    version: Annotated[int, typer.Argument(metavar="VERSION", help="As `models` lists it.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the history.")],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    force: Annotated[
        bool, flag("--force", "Also where a model that was trained later serves.")
    ] = False,
) -> None:
    """Push a blessed model that waits, under `push.approve: manual` or after a hold."""
    approve_model(load_here(config, overrides), output, ApprovalRequest(version, reason, force))


@app.command()
def doctor(output: OutputOption = OUTPUT, verbose: VerboseOption = False) -> None:
    """Check this machine, and say what to do about what is found."""
    if not show_findings(output, verbose):
        raise typer.Exit(EXIT_UNUSABLE)


def main() -> None:
    """The console entry point."""
    run_app(app, runs_until_stopped(sys.argv[1:]))


if __name__ == "__main__":
    main()
