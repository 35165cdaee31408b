"""Signals that come while the commands are imported, which takes a second."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

_SERVERS = ("serve", "schedule")
"""Commands that a signal ends well."""
_OTHER_WAYS = ("--once", "--list", "--check")
"""Options by which they do something else, and end by themselves."""
_WITH_VALUE = ("--config", "--set", "--output")
"""Options with a value that may stand before a command."""


def runs_until_stopped(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of a server: a stop is how it ends, with exit code 0."""
    left = iter(arguments)
    for argument in left:
        if argument in _WITH_VALUE:
            next(left, None)
        elif not argument.startswith("-"):
            return argument in _SERVERS and not set(_OTHER_WAYS).intersection(arguments)
    return False


def heed_signals(is_server: bool = False) -> None:
    """Ends the process at once, and without a traceback, if a stop comes before a command does.

    A server is ended so, with exit code 0, until it has handlers of its own: there is nothing to
    clean up until then, and what a handler raises may be lost in the imports of a library.

    Args:
      is_server: whether the command is one, as `runs_until_stopped` says.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        # A shell has what it runs in the background ignore Ctrl-C.
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end_well if is_server else signal.SIG_DFL)


def _end_well(*_: object) -> None:
    os._exit(0)
