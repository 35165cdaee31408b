"""Stops that come while a server starts, which takes a second or more."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

_SERVERS = ("serve", "schedule")
"""Commands that a signal ends well."""
_OTHER_WAYS = ("--once", "--list", "--check")
"""Options by which they do something else, and end by themselves."""


def runs_until_stopped(arguments: Sequence[str]) -> bool:
    """Returns whether a command line is that of a server: a stop is how it ends, with exit code
    0.
    """
    return bool(arguments) and arguments[0] in _SERVERS and not {*_OTHER_WAYS} & {*arguments}


def end_well() -> None:
    """Lets SIGTERM and Ctrl-C end this process with exit code 0, until it has handlers of its own.

    Until then there is nothing to clean up, and what a handler raises may be lost in the imports of
    a library.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        # A shell has what it runs in the background ignore Ctrl-C.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def _end(*_: object) -> None:
    os._exit(0)
