"""Lock files, which only one run of a pipeline or one scheduler holds at a time.

The locks are open file description locks of Linux. Other processes can read their state without
acquiring them. If a process ends or is killed, Linux releases its locks, unless child processes
have inherited the file descriptor.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from components.disk import disk_full, is_disk_full
from components.example_gen.paths import is_remote
from pipeline.layout import Layout
from trainer_module.errors import ConfigError, ScopelineError, TryLaterError

_FLOCK = struct.Struct("hhqqi4x")
"""The format of C's `struct flock` on 64-bit Linux: type, whence, start, length, process."""
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_NO_LOCK = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


class ProcessLock:
    """A locked file. Child processes that inherit its file descriptor share the lock."""

    def __init__(self, path: Path, content: str = "") -> None:
        """Locks the file, which is created if it does not exist.

        Args:
          content: the new content of the file; an empty string keeps the content.

        Raises:
          BlockingIOError: another process holds the lock.
          OSError: the file cannot be written.
        """
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            if content:
                self.write(content)
        except OSError:
            os.close(self.descriptor)
            raise

    def write(self, content: str) -> None:
        """Replaces the content of the file."""
        written = os.pwrite(self.descriptor, content.encode(), 0)
        os.ftruncate(self.descriptor, written)

    def close(self) -> None:
        """Closes the descriptor; child processes that share the lock continue to hold it."""
        os.close(self.descriptor)

    def release(self) -> None:
        """Releases the lock, even if child processes share it."""
        fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, _NO_LOCK)
        os.close(self.descriptor)


def is_held(path: Path) -> bool:
    """Returns whether a process holds the lock of a file, without acquiring it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


@contextmanager
def run_lock(layout: Layout) -> Iterator[None]:
    """Creates the pipeline's folder and holds the lock of a run.

    Raises:
      TryLaterError: another run holds the lock.
      ConfigError: the folder or the push directory cannot be written.
    """
    make_root(layout)
    try:
        lock = ProcessLock(layout.lock)
    except BlockingIOError:
        raise TryLaterError(
            f"{layout.root}: another run of `{layout.name}` is under way; wait until that run "
            "ends, or give another output folder with --output"
        ) from None
    except OSError as error:
        raise _unwritable(layout, error) from None
    try:
        _check_serving(layout)
        yield
    finally:
        lock.release()


@contextmanager
def only_scheduler(lock_file: Path) -> Iterator[None]:
    """Creates the output folder and holds the lock of its scheduler.

    Args:
      lock_file: the lock file of the scheduler, directly in the output folder.

    Raises:
      TryLaterError: another scheduler holds the lock.
      DiskFullError: the disk is full.
      ConfigError: the folder cannot be written.
    """
    output = lock_file.parent
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = ProcessLock(lock_file, str(os.getpid()))
    except BlockingIOError:
        raise TryLaterError(
            f"{output}: another scheduler, process {lock_file.read_text() or 'unknown'}, uses "
            "this folder; stop that scheduler and name all pipelines in one command, or give "
            "another output folder with --output"
        ) from None
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(lock_file) from None
        raise ConfigError(
            f"{output}: cannot be written ({error.strerror or error}); give a folder that you may "
            "write with --output"
        ) from None
    with closing(lock):
        yield


def make_root(layout: Layout) -> None:
    """Creates the pipeline's folder.

    Raises:
      ConfigError: the folder cannot be created, or TFX would read its path as a glob.
    """
    _refuse_wildcards(str(layout.root), "--output")
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(layout, error) from None


def _refuse_wildcards(path: str, key: str) -> None:
    if found := re.search(r"[*?\[\]]", path):
        raise ConfigError(
            f"{key}: found {found[0]!r} in the path {path}; expected a folder without wildcards"
        )


def _unwritable(layout: Layout, error: OSError) -> ScopelineError:
    if is_disk_full(error):
        return disk_full(layout.root)
    return ConfigError(
        f"{layout.root}: cannot write the output here ({error.strerror or error}); "
        "give a folder that you may write with --output"
    )


def _check_serving(layout: Layout) -> None:
    """Creates a local push directory, and checks before the run that it can be written."""
    if layout.push_directory is None or is_remote(layout.serving):
        return
    _refuse_wildcards(layout.serving, "push.directory")
    try:
        Path(layout.serving).mkdir(parents=True, exist_ok=True)
        # The file has no name, so that it disappears even after an interruption.
        tempfile.TemporaryFile(dir=layout.serving).close()
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(Path(layout.serving)) from None
        raise ConfigError(
            f"push.directory: {layout.serving} cannot be written ({error.strerror or error}); "
            "choose a folder that you may write"
        ) from None
