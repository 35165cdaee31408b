"""The exit codes of the command lines; the README lists them for users."""

EXIT_PUSHED = 0
"""A model was pushed, or what was asked for is done."""
EXIT_FAILED = 1
"""A component failed."""
EXIT_UNUSABLE = 2
"""The config or the data cannot be used."""
EXIT_NOT_BLESSED = 3
"""The model was not blessed, and nothing was pushed."""
EXIT_INTERRUPTED = 130
"""Ctrl-C ended the command; a shell gives the same code for it."""
