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

from components.compat.older_linux import is_caused_by_older_linux
from components.processes.stopping import exit_process, install_handlers
from components.release import read_version
from components.serving.settings import OnUnreadable
from pipeline.cli.help import Group, RootGroup, name_config
from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import EXIT_UNUSABLE, exit_code_of
from pipeline.layout import Layout
from pipeline.own_modules import ROOT, find_modules_in
from pipeline.runs.logs import older_linux_error, redirected_output
from trainer_module.errors import ConfigError, ScopelineError
from trainer_module.scratch import own_temporary_files

OUTPUT = Path("output")
"""The default output folder."""
DEFAULT_CONFIG = ROOT / "configs" / "digits.yaml"


def flag(name: str, text: str) -> Any:
    """Returns a boolean option without a `--no-` form."""
    return typer.Option(name, help=text)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"scopeline {read_version()}")
        raise typer.Exit


PrintVersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]
ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Read this YAML file.",
        show_default="configs/digits.yaml",
    ),
]
SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as train.epochs=3."),
]
OutputOption = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Use this output folder.")
]
VerboseOption = Annotated[bool, flag("--verbose", "Show the output of libraries as well.")]
ModelOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Use the pushed version in this folder."),
]
VersionOption = Annotated[
    int | None,
    typer.Option(
        metavar="VERSION",
        help="Use this version.",
        show_default="the newest not withdrawn",
    ),
]
VariantOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Use this variant, such as int8."),
]
OnUnreadableOption = Annotated[
    OnUnreadable | None,
    typer.Option(
        metavar="MODE",
        help="Handle invalid values: `missing` or `refuse`.",
        show_default="the config's",
    ),
]


class ConfigGroup(RootGroup):
    """A group whose commands also accept the config as the first argument: `run cars.yaml`."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        """Inserts `--config` before a config file that comes first."""
        return super().parse_args(context, [*name_config(self, arguments[:1]), *arguments[1:]])


def group_with_default(name: str) -> type[Group]:
    """Returns the class of a command group with a default command.

    Args:
      name: the command that runs if the command line names no command.
    """

    class _Group(Group):
        def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
            commands = (*self.commands, *context.help_option_names)
            if not arguments or arguments[0] not in commands:
                arguments = [name, *arguments]
            return super().parse_args(context, arguments)

    return _Group


def run_app(app: typer.Typer, is_server: bool = False) -> None:
    """Runs a command; prints a ScopelineError as a message without a traceback.

    Args:
      is_server: whether the command handles SIGTERM and Ctrl-C itself.
    """
    if not is_server:
        install_handlers()
    try:
        app()
    except SystemExit as end:
        # Typer exits with a number. A string is an error message, which Python prints.
        if not isinstance(end.code, int):
            raise
        exit_process(end.code)
    except ScopelineError as error:
        typer.echo(str(error), err=True)
        sys.exit(exit_code_of(error))
    except ImportError as error:
        if not is_caused_by_older_linux(error):
            raise
        typer.echo(str(older_linux_error()), err=True)
        sys.exit(EXIT_UNUSABLE)


def refuse_options_before(context: typer.Context) -> None:
    """Raises ConfigError if options stand before a command, which would ignore them."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        # Depending on its version, typer uses click's enum or its own copy, with equal names.
        if source is not None and source.name == "COMMANDLINE":
            name = context.invoked_subcommand
            raise ConfigError(
                f"{option.opts[0]}: write options after the command: "
                f"`{context.command_path} {name} {option.opts[0]} ...`"
            )


def find_modules_here() -> None:
    """Makes the user's modules importable from the working directory."""
    find_modules_in(Path.cwd())


def load_here(path: Path, overrides: list[str]) -> PipelineConfig:
    """Loads a config; the user's modules are imported from the working directory."""
    find_modules_here()
    return load_config(path, overrides)


def open_pipeline(path: Path, overrides: list[str], output: Path) -> tuple[PipelineConfig, Layout]:
    """Returns a config, loaded as `load_here` does, and the layout of its pipeline."""
    config = load_here(path, overrides)
    return config, Layout.of(config.name, config.push, output)


@contextmanager
def quiet_console(verbose: bool) -> Iterator[Console]:
    """Yields a console; the output of libraries goes to a file that is deleted afterwards."""
    with own_temporary_files() as folder:  # noqa: SIM117
        with redirected_output(Path(folder) / "log", verbose) as stream:
            yield Console(file=stream, highlight=False, soft_wrap=True)


NO_TERMINAL_WIDTH = 200
"""The number of characters in a line if the output is not a terminal."""


def wide_console() -> Console:
    """Returns a console as wide as the terminal, or 200 characters wide without a terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else NO_TERMINAL_WIDTH)


def plain_table(*columns: str) -> Table:
    """Returns a table without lines, whose long cells wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
