"""The help of the commands: a line or two for each option, so that it fits a screen."""

from __future__ import annotations

from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _ShortHelp:
    """The help of a command or a group: as typer's, but without boxes, types and ranges."""

    def format_help(self, context: Any, formatter: Any) -> None:
        """Writes the usage, the text, the options or the commands in sections, and the epilogue."""
        command: Any = self
        sections: dict[str, list[tuple[str, str]]] = {}
        arguments = []
        if isinstance(self, TyperGroup):
            for name in self.list_commands(context):
                listed: Any = self.get_command(context, name)
                summary = (listed.help or "").partition("\n\n")[0].replace("\n", " ")
                title = listed.rich_help_panel or "Commands"
                sections.setdefault(title, []).append((name, summary.strip().rstrip(".")))
            usage = "COMMAND ..."
        else:
            listed = [one for one in command.get_params(context) if not one.hidden]
            for parameter in sorted(listed, key=_is_option):
                arguments += [] if _is_option(parameter) else [parameter.metavar]
                title = "Options" if _is_option(parameter) else "Arguments"
                sections.setdefault(title, []).append(_describe(parameter, context))
            usage = " ".join([*arguments, "[OPTIONS]"])
        formatter.write_usage(context.command_path, usage)
        command.format_help_text(context, formatter)
        names = [name for rows in sections.values() for name, _ in rows]
        width = max(len(name) for name in names)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows], width)
        command.format_epilog(context, formatter)


class Command(_ShortHelp, TyperCommand):
    """A command with short help."""


class Group(_ShortHelp, TyperGroup):
    """A group of commands with short help."""


class App(typer.Typer):
    """A command line whose commands have short help."""

    def __init__(self, cls: type[TyperGroup] = Group, **settings: Any) -> None:
        """Creates a command line without commands."""
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(
            cls=cls,
            add_completion=False,
            pretty_exceptions_enable=False,
            context_settings=names,
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Returns a decorator that registers a function as a command."""
        return super().command(name, cls=Command, **settings)


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
