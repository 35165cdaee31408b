"""Files that one process holds at a time, and that name the process holding them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from components.disk import disk_full, says_full
from trainer_module.errors import ConfigError, TryLaterError


class ProcessLock:
    """A locked file. Child processes that inherit its descriptor share the lock until they end."""

    def __init__(self, path: Path) -> None:
        """Locks the file, and writes this process's id into it.

        Raises:
          BlockingIOError: another process holds it.
          OSError: it cannot be written.
        """
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self.descriptor, 0)
            os.write(self.descriptor, str(os.getpid()).encode())
        except OSError:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Releases the lock, as far as this process holds it."""
        os.close(self.descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the file, which is not changed by asking."""
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


@contextmanager
def only_scheduler(lock_file: Path) -> Iterator[None]:
    """Makes the output folder, and keeps other schedulers off it.

    Args:
      lock_file: the scheduler's lock, directly in the output folder.

    Raises:
      TryLaterError: another scheduler holds the lock.
      DiskFullError: there is no room for the lock.
      ConfigError: the folder cannot be written.
    """
    output = lock_file.parent
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = ProcessLock(lock_file)
    except BlockingIOError:
        raise TryLaterError(
            f"{output}: another scheduler, process {_holder(lock_file)}, is at work on it; stop "
            "that one, name all pipelines in one command, or give another --output"
        ) from None
    except OSError as error:
        if says_full(error):
            raise disk_full(lock_file) from None
        raise ConfigError(
            f"{output}: cannot be written ({error.strerror or error}); give a folder that you may "
            "write with --output"
        ) from None
    with closing(lock):
        yield


def _holder(path: Path) -> str:
    """The id of the process that holds the file."""
    return path.read_text() or "unknown"
