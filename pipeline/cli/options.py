"""What the command lines have in common: their options, their errors, a quiet console."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.exit_codes import EXIT_FAILED, EXIT_UNUSABLE
from pipeline.runs.logs import captured
from trainer_module.errors import InternalError, ScopelineError

OUTPUT = Path("output")
"""The output folder, where no other is given."""

ConfigOption = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The pipeline's YAML file.")
]
SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key: --set train.epochs=3."),
]
OutputOption = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Where everything is written.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show everything that components say as well.")
]


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


@contextmanager
def quiet_console(verbose: bool) -> Iterator[Console]:
    """Gives a console, while what libraries print goes to a file that is deleted afterwards.

    Args:
      verbose: whether what libraries print is shown as well.
    """
    with tempfile.TemporaryDirectory(prefix="scopeline-") as folder:  # noqa: SIM117
        with captured(Path(folder) / "log", verbose) as stream:
            yield Console(file=stream, highlight=False, soft_wrap=True)
