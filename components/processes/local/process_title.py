"""What the list of processes shows of a process that was forked."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_ARG_START = 45
"""The index of `arg_start` among what follows the command's name in /proc/self/stat; after it come
`arg_end`, `env_start` and `env_end`."""


def set_title(title: str) -> None:
    """Writes a title over the arguments of this process.

    One that is longer goes on where the environment was, which the kernel's list allows for. Where
    the system does not say where the arguments are, nothing happens.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    places = list(map(int, fields[_ARG_START : _ARG_START + 4]))
    if len(places) < 4 or not all(places):
        return
    start, end, environment_start, environment_end = places
    # Each variable gets memory of its own.
    variables = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    room = (environment_end if environment_start == end else end) - start
    text = title.encode()[: room - 1]
    text += bytes(max(end - start - len(text), 1))
    ctypes.memmove(start, text, len(text))
