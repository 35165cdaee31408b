"""What the command lines have in common: their options, their errors, a quiet console."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from components.processes.stopping import leave, obey_signals
from components.serving.settings import OnUnreadable
from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import exit_code_of
from pipeline.own_modules import ROOT, find_modules_in
from pipeline.runs.logs import captured
from trainer_module.errors import ConfigError, ScopelineError
from trainer_module.scratch import own_temporary_files

OUTPUT = Path("output")
"""The output folder, where no other is given."""
DEFAULT_CONFIG = ROOT / "configs" / "digits.yaml"


def flag(name: str, text: str) -> Any:
    """An option without a value; typer would show `<bool>` after it, as if it took one."""
    return typer.Option(name, metavar="", help=text)


_OVERRIDES = "overrides"
"""The parameter of `--set`, in every command that has it."""


def _after_earlier(context: typer.Context, overrides: list[str]) -> list[str]:
    """Puts overrides after those that stand before the command: the last of a key counts."""
    return [*context.find_root().params.get(_OVERRIDES, ()), *overrides]


ConfigOption = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The pipeline's YAML file.")
]
SetOption = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key: --set train.epochs=3.",
        callback=_after_earlier,
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Where everything is written.")
]
VerboseOption = Annotated[bool, flag("--verbose", "Show everything that components say as well.")]
ModelOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="A pushed version, without any config.")
]
VersionOption = Annotated[
    int | None,
    typer.Option(metavar="VERSION", help="As `models` lists it; else the newest not withdrawn."),
]
VariantOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of that version, as optimize.variants calls it."),
]
OnUnreadableOption = Annotated[
    OnUnreadable | None,
    typer.Option(
        help="What a text does that the model cannot read as a number, a date, or yes and no; else"
        " as the config's requests.on_unreadable says, or missing."
    ),
]


def group_with_default(name: str) -> type[TyperGroup]:
    """The class of a group in which one command is meant where none is named."""

    class _Group(TyperGroup):
        def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
            named = arguments[:1]
            if not named or named[0] not in (*self.commands, *context.help_option_names):
                arguments = [name, *arguments]
            return super().parse_args(context, arguments)

    return _Group


def run_app(app: typer.Typer, is_server: bool = False) -> None:
    """Runs a command: an error that a user can mend is shown without a traceback.

    Args:
      app: the commands.
      is_server: whether the command sees to SIGTERM and Ctrl-C itself, which end it well.
    """
    if not is_server:
        obey_signals()
    try:
        app()
    except SystemExit as end:
        # Typer's own codes are numbers; a text is the message of a failure.
        if not isinstance(end.code, int):
            raise
        leave(end.code)
    except ScopelineError as error:
        typer.echo(str(error), err=True)
        sys.exit(exit_code_of(error))


def hand_on_options(context: typer.Context) -> None:
    """Makes options that stand before a command count for it, as its defaults.

    Args:
      context: of the group that the options belong to; the command comes next.

    Raises:
      ConfigError: the command has no such option.
    """
    name = context.invoked_subcommand
    if name is None:
        return
    given = {
        option.opts[0]: context.params[option.name]
        for option in context.command.params
        if _is_given(context, option.name)
    }
    command = _subcommands(context.command)[name]
    try:
        context.default_map = {name: _defaults(command, given)}
    except LookupError as error:
        raise ConfigError(f"{error.args[0]}: `{name}` has no such option; leave it out") from None


def _is_given(context: typer.Context, parameter: str | None) -> bool:
    """Whether the command line names a parameter of a command."""
    # Typer has click's classes or copies of them, depending on its version: names are the same.
    source = context.get_parameter_source(parameter) if parameter else None
    return source is not None and source.name == "COMMANDLINE"


def _subcommands(command: Any) -> dict[str, Any]:
    """The commands of a group; of a command that is none, nothing."""
    return getattr(command, "commands", {})


def _defaults(command: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The options given before a command, as its defaults, or as those of a group's commands."""
    if subcommands := _subcommands(command):
        return _defaults_of_group(subcommands, given)
    options = _options(command)
    return {
        options[name].name: [value] if options[name].multiple else value
        for name, value in given.items()
        if options[name].name != _OVERRIDES  # These add up, instead.
    }


def _defaults_of_group(commands: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The same for the commands of a group, each of which takes the options that it has."""
    for name in given:
        if not any(name in _options(command) for command in commands.values()):
            raise LookupError(name)
    return {
        name: _defaults(child, {k: v for k, v in given.items() if k in _options(child)})
        for name, child in commands.items()
    }


def _options(command: Any) -> dict[str, Any]:
    """The options of a command, by how they are written."""
    return {name: option for option in command.params for name in option.opts}


def find_modules_here() -> None:
    """Lets modules of the user's be found where the command runs."""
    find_modules_in(Path.cwd())


def check_has_label(config: PipelineConfig) -> None:
    """Raises ConfigError where the task has no label that answers could be compared with."""
    if not config.family.has_label:
        kind = config.target.kind
        raise ConfigError(
            f"evaluate compares answers with labels, and task: {kind} has none; what its model is "
            "measured by is in the summary of a run."
        )


def load_here(path: Path, overrides: list[str]) -> PipelineConfig:
    """Loads a config; modules of the user's are found where the command runs."""
    find_modules_here()
    return load_config(path, overrides)


@contextmanager
def quiet_console(verbose: bool) -> Iterator[Console]:
    """Gives a console, while what libraries print goes to a file that is deleted afterwards.

    Args:
      verbose: whether what libraries print is shown as well.
    """
    with own_temporary_files() as folder:  # noqa: SIM117
        with captured(Path(folder) / "log", verbose) as stream:
            yield Console(file=stream, highlight=False, soft_wrap=True)
