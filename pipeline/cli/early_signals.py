"""Signal handlers for the seconds in which a server still imports its modules."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

_SERVERS = ("serve", "schedule")
"""Commands that run until a signal ends them with exit code 0."""
SERVE_REPORTS = "--serve"
"""The option with which `report` runs until a signal ends it."""
_ENDING_OPTIONS = ("--once", "--list", "--check")
"""Options with which these commands end without a signal."""


def runs_until_stopped(arguments: Sequence[str]) -> bool:
    """Returns whether a command line starts a server, which a signal ends with exit code 0."""
    if arguments[:1] == ["report"]:
        return SERVE_REPORTS in arguments
    return bool(arguments) and arguments[0] in _SERVERS and not {*_ENDING_OPTIONS} & {*arguments}


def exit_on_signals() -> None:
    """Makes SIGTERM and Ctrl-C end this process with exit code 0.

    The server installs other handlers later. Until then there is nothing to clean up, and an
    exception raised by a handler could be lost in the imports of a library.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        # A shell starts background processes with SIGINT ignored, which must not change.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def _end(*_: object) -> None:
    os._exit(0)
