"""The exit codes of the command lines; the README lists them for users."""

from trainer_module.errors import InternalError, ScopelineError, TryLaterError

EXIT_PUSHED = 0
"""A model was pushed, or what was asked for is done."""
EXIT_FAILED = 1
"""A component failed."""
EXIT_UNUSABLE = 2
"""The config or the data cannot be used."""
EXIT_NOT_BLESSED = 3
"""The model was not blessed, or lacks a variant that is required, and nothing was pushed."""
EXIT_NOT_PUSHED = 4
"""The model was blessed, and not pushed: it is held back, waits for approval, or was superseded."""
EXIT_LATER = 75
"""What is needed is busy or away now, such as by another run; later the same command may succeed.

The number is EX_TEMPFAIL of sysexits.h.
"""
EXIT_INTERRUPTED = 130
"""Ctrl-C ended the command; a shell gives the same code for it."""


def exit_code_of(error: ScopelineError) -> int:
    """Returns the exit code of a command that an error ends before, or outside of, a run."""
    if isinstance(error, InternalError):
        return EXIT_FAILED
    return EXIT_LATER if isinstance(error, TryLaterError) else EXIT_UNUSABLE


def worse(first: int, second: int) -> int:
    """Of two exit codes the one to end with: what passes by itself is the least of all failures."""
    return max(first, second, key=lambda code: 0.5 if code == EXIT_LATER else code)
