"""Runs a config on Kubeflow Pipelines: compiles, submits, follows and schedules runs."""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # The imports take a second, and Ctrl-C must show no traceback then. Later `run_app` handles it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    import typer  # noqa: F401 - shows whether Scopeline is installed
except ModuleNotFoundError:
    sys.exit("Scopeline is not installed here: run `make setup`, then use .venv/bin/python")

from pipeline.cli.kubeflow import app
from pipeline.cli.options import run_app
from trainer_module.typed_words import remember_program


def main() -> None:
    """Runs the command line; scopeline_programs.py calls this function."""
    remember_program()
    run_app(app)


if __name__ == "__main__":
    main()
