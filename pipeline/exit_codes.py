"""The exit codes of commands; the README lists them for users."""

from trainer_module.errors import InternalError, ScopelineError, TryLaterError

EXIT_PUSHED = 0
"""A model was pushed, or the command succeeded."""
EXIT_FAILED = 1
"""A component failed."""
EXIT_UNUSABLE = 2
"""The config or the data cannot be used."""
EXIT_NOT_BLESSED = 3
"""The model was not blessed, or lacks a required variant, and nothing was pushed."""
EXIT_NOT_PUSHED = 4
"""The model was blessed, but not pushed because of a hold, a pending approval or a newer model."""
EXIT_LATER = 75
"""A resource is busy or unreachable, for example because of another run; try again later.

The number is EX_TEMPFAIL of sysexits.h.
"""
EXIT_INTERRUPTED = 130
"""Ctrl-C ended the command; shells use the same exit code."""


def exit_code_of(error: ScopelineError) -> int:
    """Returns the exit code of a command that an error ends outside of a run."""
    if isinstance(error, InternalError):
        return EXIT_FAILED
    return EXIT_LATER if isinstance(error, TryLaterError) else EXIT_UNUSABLE


def worse(first: int, second: int) -> int:
    """Returns the worse of two exit codes; EXIT_LATER is worse than success only."""
    return max(first, second, key=lambda code: 0.5 if code == EXIT_LATER else code)
