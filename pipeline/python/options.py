"""The names of arguments in messages that name options of the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from trainer_module.errors import ScopelineError

ARGUMENTS = {
    "label": "label=",
    "folder": "folder=",
    "model": "source",
    "config": "config",
    "version": "version=",
    "variant": "variant=",
    "set": "set=",
    "port": "port=",
    "force": "force=True",
}
"""The argument in Python by the name of the option."""
_WITH_VALUE = re.compile(r"^--([a-z-]+) (?=\S)|--([a-z-]+) (?=[A-Z]+\b)")
"""An option and the space before its value, where the value can be told from other words."""
_OPTION = re.compile(r"--([a-z-]+)")
_COMMAND = re.compile(r"(\bscopeline(?:-kubeflow)? [a-z][^`\n]*)")
"""A command line, whose options are not those of Python."""


def translate(message: str, arguments: Mapping[str, str] = ARGUMENTS) -> str:
    """Returns a message of a command with the names of Python's arguments, except in commands."""
    parts = _COMMAND.split(message)
    parts[::2] = [_translate(part, arguments) for part in parts[::2]]
    return "".join(parts)


def _translate(message: str, arguments: Mapping[str, str]) -> str:
    def argument(found: re.Match[str]) -> str:
        name = arguments.get(found[1] or found[2])
        if name is None:
            return found[0]
        return name if name.endswith("=") else f"{name} "

    message = _WITH_VALUE.sub(argument, message)
    return _OPTION.sub(lambda found: arguments.get(found[1], found[0]), message)


@contextmanager
def in_python(arguments: Mapping[str, str] = ARGUMENTS) -> Iterator[None]:
    """Names the arguments of Python in the errors of a block.

    Args:
      arguments: the arguments by the names of the options.

    Raises:
      ScopelineError: the error of the block, with the names of Python.
    """
    try:
        yield
    except ScopelineError as error:
        error.args = (translate(str(error), arguments),)
        raise


@contextmanager
def unchanged_environment(names: Iterable[str]) -> Iterator[None]:
    """Restores environment variables of this process at the end of a block."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
