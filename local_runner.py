"""Runs a config on this machine: trains, evaluates, pushes, serves and schedules models."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # The imports take a second, and Ctrl-C must show no traceback then. Later `run_app` handles it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from pipeline.cli.early_signals import exit_on_signals, runs_until_stopped

if __name__ == "__main__" and runs_until_stopped(sys.argv[1:]):
    exit_on_signals()

try:
    import typer
except ModuleNotFoundError:
    sys.exit("Scopeline is not installed here: run `make setup`, then use .venv/bin/python")

from pipeline.cli.cluster import app as cluster_app
from pipeline.cli.doctor import fix_machine, show_findings
from pipeline.cli.evaluate import show_evaluation, show_metrics_of_rows, warn_of_unused_overrides
from pipeline.cli.help import App
from pipeline.cli.init import init
from pipeline.cli.models import show_models
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigGroup,
    ConfigOption,
    ModelOption,
    OutputOption,
    PrintVersionOption,
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
from pipeline.cli.report import compare, report
from pipeline.cli.run import plan_file, run_file
from pipeline.cli.schedule import history, schedule
from pipeline.cli.schema import app as schema_app
from pipeline.cli.serve import serve
from pipeline.cli.show import show
from pipeline.cli.skew import skew
from pipeline.cli.spans import app as spans_app
from pipeline.cli.versions import (
    approve_model,
    hold_pushes,
    release_pushes,
    roll_back_model,
    withdraw_model,
)
from pipeline.exit_codes import EXIT_UNUSABLE
from pipeline.run_context import BY_HAND, RunRequest
from pipeline.runs.run import run_pipeline
from pipeline.versions.rollback import RollbackRequest
from pipeline.versions.waiting import ApprovalRequest
from trainer_module.typed_words import remember_program

_TRAIN, _LOOK, _PREDICT = "Train", "Look at runs", "Predict"
_VERSIONS = "Choose the version in service"
_RETRAIN, _MACHINE = "Retrain on new data", "Set up this machine"


def _section(title: str, page: str) -> dict[str, str]:
    """Returns the typer settings of a command: its section in the help, and its guide."""
    return {"rich_help_panel": title, "epilog": f"Guide: docs/{page}"}


app = App(
    cls=ConfigGroup,
    name="scopeline",
    epilog="Guide: docs/quickstart.md",
    no_args_is_help=False,
)

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Record this reason in the history.")
]


@app.callback(invoke_without_command=True)
def default(
    context: typer.Context,
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    prints_version: PrintVersionOption = False,
) -> None:
    """Turn one YAML file into a production TFX pipeline.

    A run pushes its model only if the model is better. Begin with:

      propose a config  scopeline init DATA
      train and push    scopeline run config.yaml
      serve the model   scopeline serve config.yaml

    Without a command or FILE, configs/digits.yaml runs.
    """
    if context.invoked_subcommand is None:
        raise typer.Exit(run_file(config, overrides, output, verbose, RunRequest()).exit_code)
    refuse_options_before(context)


app.command(**_section(_TRAIN, "quickstart.md"))(init)


@app.command(**_section(_TRAIN, "quickstart.md"))
def run(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
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


@app.command(**_section(_TRAIN, "tuning.md"))
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


@app.command(**_section(_TRAIN, "quickstart.md"))
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
    plan_file(config, overrides, output, verbose)


@app.command(**_section(_TRAIN, "evaluation.md"))
def evaluate(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    checkpoint: Annotated[
        str,
        typer.Option(metavar="EPOCH", help="Evaluate the checkpoint of this epoch, or `latest`."),
    ] = "latest",
    pattern: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILES",
            help="Evaluate on these labelled rows: a file, folder or glob.",
        ),
    ] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    variant: VariantOption = None,
) -> None:
    """Evaluate a pushed version or a checkpoint.

    With --input, evaluates a pushed version on labelled rows, with the metrics and slices of the
    config. Without --input, evaluates a checkpoint of the last training on the eval split.

    Example: scopeline evaluate --config my.yaml --input labelled.csv

    Exit codes: 0 done, 2 the version, the checkpoint or the rows are unusable.
    """
    loaded = load_here(config, overrides)
    warn_of_unused_overrides(overrides, is_pushed=pattern is not None)
    if pattern is None:
        show_evaluation(loaded, output, checkpoint, verbose)
    else:
        chosen = chosen_model(loaded, output, model, version, variant)
        show_metrics_of_rows(loaded, chosen, pattern, verbose)


app.command(**_section(_LOOK, "report.md"))(report)
app.command(**_section(_LOOK, "report.md"))(compare)
app.command(**_section(_LOOK, "report.md"))(show)
app.command(**_section(_PREDICT, "serving.md"))(predict)
app.command(**_section(_PREDICT, "serving.md"))(serve)
app.command(**_section(_PREDICT, "serving.md"))(skew)


@app.command(**_section(_VERSIONS, "on-call.md"))
def models(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    withdraw: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Withdraw this version; it must not be in service."),
    ] = None,
    reason: ReasonOption = None,
) -> None:
    """List the versions with their state, kind, strategy and metrics.

    Versions are listed newest first, with the reason for their state. --withdraw VERSION marks a
    version that is not in service as bad: no rollback, warm start or comparison uses the version.

    Example: scopeline models --config my.yaml --withdraw 1767600000 --reason "bad"
    """
    if withdraw is not None:
        withdraw_model(load_here(config, overrides), output, withdraw, reason)
    else:
        show_models(load_here(config, overrides), output, as_json)


@app.command(**_section(_VERSIONS, "on-call.md"))
def rollback(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            help="Put this version in service.",
            show_default="the previous version",
        ),
    ] = None,
    reason: ReasonOption = None,
    force: Annotated[bool, flag("--force", "Allow a withdrawn version.")] = False,
    holds: Annotated[bool, flag("--hold", "Stop later pushes, too, as `hold` does.")] = False,
) -> None:
    """Put an earlier version in service.

    Pushes a copy of that version as the newest, and withdraws the versions after it. If the command
    is interrupted, run it again.

    Example: scopeline rollback --config my.yaml --reason "worse on mobile"
    """
    roll_back_model(load_here(config, overrides), output, RollbackRequest(to, reason, force, holds))


@app.command(**_section(_VERSIONS, "on-call.md"))
def hold(
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Show this reason until the release.")
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="End the hold at this time, such as 2026-01-05T12:00."),
    ] = None,
    stops_runs: Annotated[bool, flag("--all", "Stop scheduled runs, too.")] = False,
) -> None:
    """Stop pushes until `release` or a date.

    Runs still train and evaluate. A blessed model waits, and its run exits with code 4. The version
    in service does not change.

    Example: scopeline hold --config my.yaml --reason "audit" --until 2026-01-05
    """
    hold_pushes(load_here(config, overrides), output, reason, until, stops_runs)


@app.command(**_section(_VERSIONS, "on-call.md"))
def release(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    reason: ReasonOption = None,
) -> None:
    """End a hold, so that runs push again.

    Models that wait are pushed with `approve`.

    Example: scopeline release --config my.yaml
    """
    release_pushes(load_here(config, overrides), output, reason)


@app.command(**_section(_VERSIONS, "on-call.md"))
def approve(
    version: Annotated[
        int, typer.Argument(metavar="VERSION", help="The version as listed by `models`.")
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Record this reason in the history.")],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    force: Annotated[bool, flag("--force", "Push even if a later model is in service.")] = False,
) -> None:
    """Push a blessed model that waits for approval.

    Example: scopeline approve 1767600000 --config my.yaml --reason "checked"
    """
    approve_model(load_here(config, overrides), output, ApprovalRequest(version, reason, force))


app.command(**_section(_RETRAIN, "scheduling.md"))(schedule)
app.command(**_section(_RETRAIN, "scheduling.md"))(history)


@app.command(**_section(_MACHINE, "quickstart.md"))
def doctor(
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    fix: Annotated[bool, flag("--fix", "Make the libraries load on an older Linux.")] = False,
) -> None:
    """Check this machine, and give advice on each problem.

    Checks Python, the libraries, the disk, the memory and the devices. Two libraries of TFX need
    glibc 2.39; on an older Linux, --fix edits them first.

    Exit codes: 0 the machine is ready, 2 there is a problem.
    """
    if fix:
        fix_machine()
    if not show_findings(output, verbose):
        raise typer.Exit(EXIT_UNUSABLE)


app.add_typer(spans_app, name="spans", rich_help_panel=_RETRAIN)
app.add_typer(schema_app, name="schema", rich_help_panel=_RETRAIN)
app.add_typer(cluster_app, name="cluster", rich_help_panel=_MACHINE)


def main() -> None:
    """Runs the command line; scopeline_programs.py calls this function."""
    remember_program()
    run_app(app, runs_until_stopped(sys.argv[1:]))


if __name__ == "__main__":
    main()
