"""Runs a config on this machine: trains, evaluates, pushes, serves and schedules models."""

from __future__ import annotations

import signal
import sys

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
from pipeline.cli.doctor import doctor
from pipeline.cli.evaluate import evaluate
from pipeline.cli.help import App
from pipeline.cli.init import init
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigGroup,
    ConfigOption,
    OutputOption,
    PrintVersionOption,
    SetOption,
    VerboseOption,
    refuse_options_before,
    run_app,
)
from pipeline.cli.predict import predict
from pipeline.cli.report import compare, report
from pipeline.cli.run import plan, run, run_file, tune
from pipeline.cli.schedule import history, schedule
from pipeline.cli.schema import app as schema_app
from pipeline.cli.serve import serve
from pipeline.cli.show import show
from pipeline.cli.skew import skew
from pipeline.cli.spans import app as spans_app
from pipeline.cli.versions import approve, hold, models, release, rollback
from pipeline.run_context import RunRequest
from trainer_module.typed_words import remember_program

_TRAIN, _LOOK, _PREDICT = "Train", "Look at runs", "Predict"
_VERSIONS = "Choose the version in service"
_RETRAIN, _MACHINE = "Retrain on new data", "Set up this machine"

app = App(
    cls=ConfigGroup,
    name="scopeline",
    epilog="Guide: docs/quickstart.md",
    no_args_is_help=False,
)


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


for _title, _page, _commands in (
    (_TRAIN, "quickstart.md", (init, run)),
    (_TRAIN, "tuning.md", (tune,)),
    (_TRAIN, "quickstart.md", (plan,)),
    (_TRAIN, "evaluation.md", (evaluate,)),
    (_LOOK, "report.md", (report, compare, show)),
    (_PREDICT, "serving.md", (predict, serve, skew)),
    (_VERSIONS, "on-call.md", (models, rollback, hold, release, approve)),
    (_RETRAIN, "scheduling.md", (schedule, history)),
    (_MACHINE, "quickstart.md", (doctor,)),
):
    for _command in _commands:
        app.command(rich_help_panel=_title, epilog=f"Guide: docs/{_page}")(_command)

app.add_typer(spans_app, name="spans", rich_help_panel=_RETRAIN)
app.add_typer(schema_app, name="schema", rich_help_panel=_RETRAIN)
app.add_typer(cluster_app, name="cluster", rich_help_panel=_MACHINE)


def main() -> None:
    """Runs the command line; scopeline_programs.py calls this function."""
    remember_program()
    run_app(app, runs_until_stopped(sys.argv[1:]))


if __name__ == "__main__":
    main()
