"""A file that one process holds at a time, and that says who does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class ProcessLock:
    """A held file; whoever inherits its descriptor holds it too, until all have ended."""

    def __init__(self, path: Path) -> None:
        """Takes the file, and writes this process's id into it.

        Raises:
          BlockingIOError: another process holds it.
          OSError: it cannot be written.
        """
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self.descriptor)
            raise
        os.ftruncate(self.descriptor, 0)
        os.write(self.descriptor, str(os.getpid()).encode())

    def close(self) -> None:
        """This process lets go."""
        os.close(self.descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the file; it is left as it is."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(path: Path) -> str:
    """The id of the process that holds the file."""
    return path.read_text() or "unknown"
