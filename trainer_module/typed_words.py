"""Commands in messages, which begin with the words that the user has typed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM_VARIABLE = "SCOPELINE_PROGRAM"
"""The environment variable with the words that start a command, which child processes inherit."""
OPTIONS_VARIABLE = "SCOPELINE_OPTIONS"
"""The environment variable with the options that name the config and the output folder."""
_LOCAL, _KUBEFLOW = "scopeline", "scopeline-kubeflow"
_NAMES = (
    (_LOCAL, _KUBEFLOW),
    ("local_runner.py", "kubeflow_runner.py"),
    ("local_runner", "kubeflow_runner"),
)
"""The names of the two programs: as commands, as files and as modules."""


def remember_program() -> None:
    """Stores the words that have started this process, unless a parent process stored its words."""
    os.environ.setdefault(PROGRAM_VARIABLE, shlex.join(_read_words()))


def remember_options(options: Sequence[str] | None) -> None:
    """Stores the options that other commands need for the same pipeline and output folder.

    Args:
      options: such as `["--config", "my.yaml"]`; empty if the defaults apply, and None if the
        config is unknown.
    """
    if options is None:
        os.environ.pop(OPTIONS_VARIABLE, None)
    else:
        os.environ[OPTIONS_VARIABLE] = shlex.join(options)


def typed_program(folder: Path | None = None) -> str:
    """Returns the words that start `scopeline`, as the user typed them.

    Without a user who typed, as in a container on Kubeflow, the word is `scopeline`.

    Args:
      folder: the folder in which the words are to be valid; default: the working directory.
    """
    return _program(0, folder)


def typed_kubeflow_program() -> str:
    """Returns the words that start `scopeline-kubeflow`, as `typed_program` does."""
    return _program(1)


def typed_command(command: str) -> str:
    """Returns a command line of `scopeline` for the current config and output folder.

    Args:
      command: the command with its own options, such as `approve 7`.
    """
    return f"{typed_program()} {command}{_typed_options()}"


def typed_kubeflow_command(command: str) -> str:
    """Returns a command line of `scopeline-kubeflow`, as `typed_command` does."""
    return f"{typed_kubeflow_program()} {command}{_typed_options()}"


def in_typed_words(text: str) -> str:
    """Returns a text in which commands begin with the words that the user has typed."""
    return re.sub(
        rf"\b{_LOCAL}(-kubeflow)?(?= [a-z])", lambda found: _program(int(bool(found[1]))), text
    )


def _read_words() -> list[str]:
    """Returns the words of this process's command line before its arguments."""
    count = len(sys.argv) - 1
    words = sys.orig_argv[: len(sys.orig_argv) - count]
    if _is_started_by_systemd() or not words or sys.orig_argv[len(words) :] != sys.argv[1:]:
        return [_LOCAL]
    if words[-2:-1] != ["-m"] and not words[-1].endswith(".py"):
        words = words[-1:]
    if os.path.basename(words[-1]) not in {name for names in _NAMES for name in names}:
        return [_LOCAL]
    # `uv run` puts the programs of the environment on the path of this process only.
    launcher = ["uv", "run"] if "UV_RUN_RECURSION_DEPTH" in os.environ else []
    return [*launcher, _shorten(words[0]), *words[1:]]


def _is_started_by_systemd() -> bool:
    return os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())


def _shorten(program: str) -> str:
    """Returns the name of a program that is on the path, because the shell made a path of it."""
    name = os.path.basename(program)
    return name if shutil.which(name) == program else program


def _program(index: int, folder: Path | None = None) -> str:
    """Returns the words that start a program, by the index of its name in `_NAMES`."""
    *words, last = shlex.split(os.environ.get(PROGRAM_VARIABLE) or _LOCAL)
    parent, name = os.path.split(last)
    name = next((names[index] for names in _NAMES if name in names), name)
    if words[-1:] == ["-m"] and name == _KUBEFLOW:
        name = "kubeflow_runner"
    words = [*words, os.path.join(parent, name)]
    if folder is not None and folder.resolve() != Path.cwd().resolve():
        words = [os.path.abspath(word) if _is_path(word) else word for word in words]
    return shlex.join(words)


def _is_path(word: str) -> bool:
    return not word.startswith("-") and ("/" in word or word.endswith(".py"))


def _typed_options() -> str:
    options = os.environ.get(OPTIONS_VARIABLE, "--config FILE")
    return options and f" {options}"
