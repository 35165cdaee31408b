"""Options, error handling, consoles and tables that the commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from components.processes.stopping import exit_process, install_handlers
from components.serving.settings import OnUnreadable
from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import exit_code_of
from pipeline.own_modules import ROOT, find_modules_in
from pipeline.runs.logs import captured
from trainer_module.errors import ConfigError, ScopelineError
from trainer_module.scratch import own_temporary_files

OUTPUT = Path("output")
"""The default output folder."""
DEFAULT_CONFIG = ROOT / "configs" / "digits.yaml"


def flag(name: str, text: str) -> Any:
    """Returns a boolean option; typer's own would show `<bool>`, as if the option took a value."""
    return typer.Option(name, metavar="", help=text)


ConfigOption = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The pipeline's YAML file.")
]
SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key: --set train.epochs=3."),
]
OutputOption = Annotated[Path, typer.Option("--output", metavar="DIR", help="The output folder.")]
VerboseOption = Annotated[bool, flag("--verbose", "Show the output of components as well.")]
ModelOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder of a pushed version, instead of a config."),
]
VersionOption = Annotated[
    int | None,
    typer.Option(
        metavar="VERSION", help="The number in `models`; default: the newest not withdrawn."
    ),
]
VariantOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A variant of that version, named as in optimize.variants."),
]
OnUnreadableOption = Annotated[
    OnUnreadable | None,
    typer.Option(
        help="How to handle a text that is no valid number, date or boolean; default:"
        " requests.on_unreadable of the config, or missing."
    ),
]


class ConfigGroup(TyperGroup):
    """Commands of which each takes the config as its first argument, too: `run cars.yaml`."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        """Puts `--config` before a config that follows the command or stands alone."""
        place = 1 if arguments[:1] and arguments[0] in self.commands else 0
        command = self.commands[arguments[0]] if place else self
        takes_config = any("--config" in option.opts for option in command.params)
        if takes_config and arguments[place:] and arguments[place].endswith((".yaml", ".yml")):
            arguments = [*arguments[:place], "--config", *arguments[place:]]
        return super().parse_args(context, arguments)


def group_with_default(name: str) -> type[TyperGroup]:
    """Returns the class of a command group that runs a default command if none is named."""

    class _Group(TyperGroup):
        def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
            named = arguments[:1]
            if not named or named[0] not in (*self.commands, *context.help_option_names):
                arguments = [name, *arguments]
            return super().parse_args(context, arguments)

    return _Group


def run_app(app: typer.Typer, is_server: bool = False) -> None:
    """Runs a command; shows an error that the user can mend without a traceback.

    Args:
      app: the commands.
      is_server: whether the command handles SIGTERM and Ctrl-C itself.
    """
    if not is_server:
        install_handlers()
    try:
        app()
    except SystemExit as end:
        # Typer's own codes are numbers; a text is an error message.
        if not isinstance(end.code, int):
            raise
        exit_process(end.code)
    except ScopelineError as error:
        typer.echo(str(error), err=True)
        sys.exit(exit_code_of(error))


def refuse_options_before(context: typer.Context) -> None:
    """Raises ConfigError if options stand before a command, which would ignore them."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        # Depending on its version, typer uses click's classes or copies: names are equal in both.
        if source is not None and source.name == "COMMANDLINE":
            name = context.invoked_subcommand
            raise ConfigError(
                f"{option.opts[0]}: give it after `{name}`, if that has such an option"
            )


def find_modules_here() -> None:
    """Makes the user's modules importable from the working directory."""
    find_modules_in(Path.cwd())


def check_has_label(config: PipelineConfig) -> None:
    """Raises ConfigError if the task has no label to compare predictions with."""
    if not config.family.has_label:
        kind = config.target.kind
        raise ConfigError(
            f"evaluate compares answers with labels, and task: {kind} has none; what its model is "
            "measured by is in the summary of a run."
        )


def load_here(path: Path, overrides: list[str]) -> PipelineConfig:
    """Loads a config; the user's modules are imported from the working directory."""
    find_modules_here()
    return load_config(path, overrides)


@contextmanager
def quiet_console(verbose: bool) -> Iterator[Console]:
    """Yields a console; the output of libraries goes to a file that is deleted afterwards.

    Args:
      verbose: whether the output of libraries is shown.
    """
    with own_temporary_files() as folder:  # noqa: SIM117
        with captured(Path(folder) / "log", verbose) as stream:
            yield Console(file=stream, highlight=False, soft_wrap=True)


NO_TERMINAL_WIDTH = 200
"""The characters of a line if the output is not a terminal."""


def wide_console() -> Console:
    """Returns a console as wide as the terminal, or wide enough for a sentence without one."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else NO_TERMINAL_WIDTH)


def plain_table(*columns: str) -> Table:
    """Returns a table without lines, whose long cells wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
