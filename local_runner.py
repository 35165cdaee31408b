"""Runs a config on this machine: trains, evaluates, pushes, serves and schedules models."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C shows no traceback during the imports, which take a second; later `run_app` handles it.
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
from pipeline.cli.predict import chosen_model, predict
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
    str | None, typer.Option("--reason", metavar="TEXT", help="The reason, for the history.")
]


@app.callback(invoke_without_command=True)
def default(
    context: typer.Context,
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
) -> None:
    """Run configs/digits.yaml if no command is given."""
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
            metavar="SPAN",
            help="The last span of the window: a date, an hour or a number; default: the newest.",
        ),
    ] = None,
    validate_only: Annotated[
        bool, flag("--validate-only", "Read and check the data, without training.")
    ] = False,
    because: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason for the run, for the history.")
    ] = BY_HAND,
    force: Annotated[
        bool, flag("--force", "Run even if nothing has changed since the last run.")
    ] = False,
) -> None:
    """Run a pipeline from the data to a pushed model.

    Components whose inputs and settings have not changed are taken from the cache. If nothing has
    changed since the last run, the command reports its outcome and exit code; --force runs anyway.
    Data in spans: only new spans are read.

    Example: local_runner.py run --config my.yaml --set train.epochs=3

    Exit codes: 0 a model was pushed, 1 a component failed, 2 the config or the data is unusable, 3
    the model was not blessed, 4 the blessed model is held back or waits for approval, 75 try again
    later: another run is in progress, or the metadata server is unreachable.
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
    """Search for better values of `model` and `train`, and print them as YAML.

    Runs the pipeline up to the Tuner. An interrupted search resumes with its finished trials. The
    next `run` trains with the best values. Without a section `tune` the search takes 10 minutes and
    chooses its own search space.

    Example: local_runner.py tune --config my.yaml

    Exit codes: 0 done, 1 the search failed, 2 the config or the data is unusable.
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
    """Show what a run would do, component by component, without running anything.

    Each component is listed as `runs` or `cached`, with the reason.

    Example: local_runner.py plan --config my.yaml
    """
    show_plan(load_here(config, overrides), output, verbose)


@app.command()
def evaluate(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="latest|EPOCH", help="The checkpoint to evaluate: the latest, or an epoch."
        ),
    ] = "latest",
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE|FOLDER|GLOB", help="Files with labelled rows."),
    ] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    variant: VariantOption = None,
) -> None:
    """Evaluate a pushed version on labelled rows, or a checkpoint on the eval split.

    With --input: the config's metrics and slices of a pushed version, on rows that are read as in
    training. Without --input: loss and metrics of a checkpoint of the last training; needs
    `train.checkpoints`.

    Example: local_runner.py evaluate --config my.yaml --input labelled.csv

    Exit codes: 0 done, 2 the version or checkpoint does not exist, or the rows cannot be used.
    """
    loaded = load_here(config, overrides)
    say_what_does_not_count(overrides, is_pushed=given is not None)
    if given is None:
        show_evaluation(loaded, output, checkpoint, verbose)
    else:
        asked = chosen_model(loaded, output, model, version, variant)
        show_metrics_of_rows(loaded, asked, given, verbose)


app.command()(predict)
app.command()(serve)
app.command()(skew)


@app.command()
def models(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    withdraw: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION", help="Withdraw this version, which must not be in service."
        ),
    ] = None,
    reason: ReasonOption = None,
) -> None:
    """List the pushed versions, newest first, with state, data, strategy and metrics.

    The state says which version serves. With --withdraw VERSION, marks a version that does not
    serve as bad: its files stay, but it is no baseline, no warm start and no target of a rollback
    any more.

    Example: local_runner.py models --config my.yaml --withdraw 1767600000 --reason "wrong labels"
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
        typer.Option(
            metavar="VERSION", help="The version to go back to; default: the previous one."
        ),
    ] = None,
    reason: ReasonOption = None,
    force: Annotated[bool, flag("--force", "Accept a withdrawn version.")] = False,
    holds: Annotated[bool, flag("--hold", "Also stop pushes from then on; see `hold`.")] = False,
) -> None:
    """Put an earlier version in service, and withdraw the versions after it.

    A copy of the earlier version is pushed as the newest one, which model servers load. If the
    command is interrupted, run it again: either the old or the new version serves meanwhile.

    Example: local_runner.py rollback --config my.yaml --reason "worse on mobile" --hold
    """
    roll_back_model(load_here(config, overrides), output, RollbackRequest(to, reason, force, holds))


@app.command()
def hold(
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, which all commands show.")
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="When the hold ends: 2026-01-05, or with a time."),
    ] = None,
    stops_runs: Annotated[bool, flag("--all", "Also stop scheduled runs.")] = False,
) -> None:
    """Stop runs from pushing models until `release`, or until a date.

    Runs still train and evaluate. A blessed model waits, and its run ends with exit code 4.
    Versions that are pushed already stay in service.

    Example: local_runner.py hold --config my.yaml --reason "audit" --until 2026-01-05
    """
    hold_pushes(load_here(config, overrides), output, reason, until, stops_runs)


@app.command()
def release(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    reason: ReasonOption = None,
) -> None:
    """End a hold: runs push again, and `approve` pushes the models that wait."""
    release_pushes(load_here(config, overrides), output, reason)


@app.command()
def approve(
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The number in `models`.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the history.")],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    force: Annotated[
        bool, flag("--force", "Push even if a model that was trained later serves.")
    ] = False,
) -> None:
    """Push a blessed model that waits for approval, or that a hold kept back.

    Example: local_runner.py approve --config my.yaml 1767600000 --reason "checked by hand"
    """
    approve_model(load_here(config, overrides), output, ApprovalRequest(version, reason, force))


@app.command()
def doctor(output: OutputOption = OUTPUT, verbose: VerboseOption = False) -> None:
    """Check this machine: Python, libraries, disk, memory and devices, with advice.

    Exit codes: 0 the machine is ready, 2 there is a problem.
    """
    if not show_findings(output, verbose):
        raise typer.Exit(EXIT_UNUSABLE)


def main() -> None:
    """Runs the command line; the console entry point."""
    run_app(app, runs_until_stopped(sys.argv[1:]))


if __name__ == "__main__":
    main()
