"""What the command lines have in common."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import typer

from pipeline.exit_codes import EXIT_FAILED, EXIT_UNUSABLE
from trainer_module.errors import InternalError, ScopelineError


def run_app(app: typer.Typer) -> None:
    """Runs a command: an error that a user can mend is shown without a traceback."""
    # A stopped run says what was done, as one interrupted from the keyboard does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except InternalError as error:
        typer.echo(str(error), err=True)
        sys.exit(EXIT_FAILED)
    except ScopelineError as error:
        typer.echo(str(error), err=True)
        sys.exit(EXIT_UNUSABLE)


def find_modules_here() -> None:
    """Lets modules of the user's be found where the command runs."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
