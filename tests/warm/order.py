"""Which command lines the zygote can run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FROZEN = ("PYTHONHASHSEED", "TF_USE_LEGACY_KERAS")
"""Variables that Python and its libraries read once: a fork keeps what the zygote had."""


class Kind(StrEnum):
    """How Python is told what to run."""

    SCRIPT = "script"
    MODULE = "-m"
    CODE = "-c"


@dataclass(frozen=True)
class Program:
    """What a command line of Python runs, and its options as far as a fork can honour them."""

    kind: Kind
    name: str
    """A path, a module, or code."""
    arguments: tuple[str, ...]
    is_safe_path: bool = False
    is_unbuffered: bool = False


def read_command(argv: Sequence[str], environment: Mapping[str, str]) -> Program | None:
    """The program of a command line; None if it is not this Python's, or asks for more."""
    python = shutil.which(argv[0], path=environment.get("PATH"))
    if python is None or not _is_this_python(Path(python)):
        return None
    frozen = {name: environment[name] for name in FROZEN if name in environment}
    if any(os.environ.get(name) != value for name, value in frozen.items()):
        return None
    words = list(argv[1:])
    options = set()
    while words and words[0] in ("-P", "-u"):
        options.add(words.pop(0))
    if not words:
        return None
    kind = {"-m": Kind.MODULE, "-c": Kind.CODE}.get(words[0], Kind.SCRIPT)
    if kind is not Kind.SCRIPT:
        words.pop(0)
    elif words[0].startswith("-"):
        return None
    return Program(
        kind,
        words[0],
        tuple(words[1:]),
        "-P" in options or bool(environment.get("PYTHONSAFEPATH")),
        "-u" in options or bool(environment.get("PYTHONUNBUFFERED")),
    )


def _is_this_python(path: Path) -> bool:
    this = Path(sys.executable)
    return path.parent == this.parent and path.name.startswith("python")
