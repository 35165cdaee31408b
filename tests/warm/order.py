"""What is asked of the zygote, and how it travels."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_MARK = b"o"
"""A byte for the descriptors to travel with."""
MOST_DESCRIPTORS = 253
"""Linux takes no more at once."""
_NEWS = struct.Struct("!ci")
STARTED, ENDED = b"s", b"e"
"""News of a process: its id, then its wait status."""
FROZEN = ("PYTHONHASHSEED", "TF_USE_LEGACY_KERAS")
"""Variables that Python and its libraries read once: a fork keeps what the zygote had."""


class Kind(Enum):
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


@dataclass(frozen=True)
class Order:
    """A process to fork. The descriptors that it gets travel beside it, in the order of `ends`."""

    argv: tuple[str, ...]
    program: Program
    environment: Mapping[str, str]
    cwd: str
    ends: tuple[int, ...]
    """The numbers that the descriptors have in the process."""
    is_session: bool
    """Whether it leads a session of its own."""


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


def send_order(connection: socket.socket, order: Order, descriptors: Sequence[int]) -> None:
    """Sends an order with its descriptors."""
    socket.send_fds(connection, [_MARK], descriptors)
    connection.sendall(pickle.dumps(order))


def receive_order(connection: socket.socket) -> tuple[Order, list[int]]:
    """What `send_order` sent."""
    _, descriptors, _, _ = socket.recv_fds(connection, len(_MARK), MOST_DESCRIPTORS)
    with connection.makefile("rb") as content:
        return pickle.load(content), descriptors  # noqa: S301 - of the tests' own process


def send_news(connection: socket.socket, what: bytes, number: int) -> None:
    """Tells whoever ordered a process of it; that one may be gone."""
    try:
        connection.sendall(_NEWS.pack(what, number))
    except OSError:
        return


def receive_news(connection: socket.socket) -> tuple[bytes, int]:
    """What `send_news` sent.

    Raises:
      EOFError: the zygote is gone.
    """
    news = connection.recv(_NEWS.size, socket.MSG_WAITALL)
    if not news:
        raise EOFError
    what, number = _NEWS.unpack(news)
    return what, number
