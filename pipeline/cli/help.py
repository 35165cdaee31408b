"""Help of the commands that fits on a screen: one or two lines for each option."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from pipeline.cli.pipeline_options import remember_pipeline
from pipeline.exit_codes import EXIT_UNUSABLE
from trainer_module.typed_words import in_typed_words, typed_kubeflow_program, typed_program


class Command(TyperCommand):
    """A command with typer's help, but without boxes, types and ranges."""

    def invoke(self, context: Any) -> Any:
        """Runs the command; its messages propose commands for the same pipeline."""
        remember_pipeline(context)
        return super().invoke(context)

    def format_help(self, context: Any, formatter: Any) -> None:
        """Writes the help: the usage, the text, the arguments, the options and the epilogue."""
        parameters = [p for p in self.get_params(context) if not getattr(p, "hidden", False)]
        arguments = [parameter for parameter in parameters if not _is_option(parameter)]
        options = [parameter for parameter in parameters if _is_option(parameter)]
        sections = {
            title: [_describe(parameter, context) for parameter in members]
            for title, members in (("Arguments", arguments), ("Options", options))
            if members
        }
        usage = " ".join([*(str(argument.metavar) for argument in arguments), "[OPTIONS]"])
        _write_help(self, context, formatter, usage, sections)


class Group(TyperGroup):
    """A group of commands whose help lists each command in one line."""

    def format_help(self, context: Any, formatter: Any) -> None:
        """Writes the help: the usage, the text, the commands in sections and the epilogue."""
        _write_help(self, context, formatter, "COMMAND ...", self.sections(context))

    def sections(self, context: Any) -> dict[str, list[tuple[str, str]]]:
        """Returns the names and summaries of the commands, by the title of their section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(context):
            command: Any = self.get_command(context, name)
            summary = (command.help or "").partition("\n\n")[0].replace("\n", " ")
            title = command.rich_help_panel or "Commands"
            sections.setdefault(title, []).append((name, summary.strip().rstrip(".")))
        return sections

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        """Names the config file of a command, or shows the help if `no_args_is_help` is set."""
        if self.no_args_is_help and not arguments:
            # Typer itself prints nothing here: it assumes that Rich has printed the help already.
            typer.echo(context.get_help())
            raise typer.Exit(EXIT_UNUSABLE)
        if arguments and (command := self.commands.get(arguments[0])):
            arguments = [arguments[0], *name_config(command, arguments[1:])]
        return super().parse_args(context, arguments)


def name_config(command: Any, arguments: list[str]) -> list[str]:
    """Inserts `--config` before a YAML file among the arguments that precede the options."""
    takes_config = any("--config" in option.opts for option in command.params)
    if not takes_config or any(word.split("=")[0] == "--config" for word in arguments):
        return arguments
    for place, word in enumerate(arguments):
        if word.startswith("-"):
            break
        if word.endswith((".yaml", ".yml")):
            return [*arguments[:place], "--config", *arguments[place:]]
    return arguments


_MAX_SUMMARIES = 10
"""The most commands of which the first screen, which has 24 lines, shows summaries."""

_Context: Any = TyperGroup.context_class


class RootContext(_Context):
    """A context that shows the program in messages as the user has typed it."""

    @property
    def command_path(self) -> str:
        """The words that start the program."""
        is_local = self.command.name == "scopeline"
        return typed_program() if is_local else typed_kubeflow_program()


class RootGroup(Group):
    """The commands of a program; their help is the first screen that users see."""

    context_class = RootContext

    def invoke(self, context: Any) -> Any:
        """Runs a command; messages propose commands for the same pipeline."""
        remember_pipeline(context)
        return super().invoke(context)

    def format_help(self, context: Any, formatter: Any) -> None:
        """Writes the help: the usage, the text and the commands, with summaries if few."""
        sections, usage = self.sections(context), "COMMAND [FILE] [OPTIONS]"
        if len(self.commands) > _MAX_SUMMARIES:
            names = {title: ", ".join(dict(rows)) for title, rows in sections.items()}
            sections = {"Commands": list(names.items())}
        _write_help(self, context, formatter, usage, sections)

    def format_epilog(self, context: Any, formatter: Any) -> None:
        """Writes the options that apply without a command, and the guide."""
        parameters: list[Any] = [*self.get_params(context)]
        options = [min(p.opts, key=len) for p in parameters if p.is_eager and not p.hidden]
        lines = (
            "`COMMAND --help` shows the options of a command and an example.",
            f"Options: {', '.join(options)}",
            str(self.epilog),
        )
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text("\b\n" + "\n".join(lines))


class App(typer.Typer):
    """A command line whose commands have short help."""

    def __init__(self, cls: type[TyperGroup] = Group, **settings: Any) -> None:
        """Creates a command line without commands."""
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(
            cls=cls,
            pretty_exceptions_enable=False,
            context_settings=names,
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Returns a decorator that registers a function as a command."""
        return super().command(name, cls=Command, **settings)


def _write_help(
    command: Any,
    context: Any,
    formatter: Any,
    usage: str,
    sections: dict[str, list[tuple[str, str]]],
) -> None:
    """Writes the help of a command; the texts of all sections begin in the same column."""
    formatter.write_usage(context.command_path, usage)
    with formatter.indentation():
        formatter.write_paragraph()
        # Examples and indented lines are not wrapped, so that users can copy them.
        unwrapped = r"(?m)^(?=Example: )|(?<=\n\n)(?=  )"
        text = re.sub(unwrapped, "\b\n", inspect.cleandoc(command.help or ""))
        formatter.write_text(in_typed_words(text))
    width = max(len(name) for rows in sections.values() for name, _ in rows)
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows], width)
    command.format_epilog(context, formatter)


def _is_option(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def _describe(parameter: Any, context: Any) -> tuple[str, str]:
    """Returns the name and the text of an option or an argument."""
    name = parameter.metavar
    if _is_option(parameter):
        name = ", ".join(sorted(parameter.opts, key=len))
        name += "" if parameter.is_flag else f" {parameter.metavar}"
    default = parameter.get_default(context, call=False)
    if isinstance(parameter.show_default, str):
        default = parameter.show_default
    if isinstance(default, Enum):
        default = default.value
    text = (parameter.help or "").rstrip(".")
    if parameter.required:
        text += " (required)"
    elif default not in (None, False, "", [], ()) and parameter.show_default:
        text += f" (default: {default})"
    return name, text
