"""Temporary folders; a later process deletes the folders of a process that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

PREFIX = "scopeline-scratch-"
"""The prefix of the names of scratch folders that have been locked at least once."""
_UNLOCKED = "scopeline-new-"
"""The prefix of the names of scratch folders before their first lock."""
TMPDIR = "TMPDIR"
"""The environment variable of the folder for temporary files."""
_own: tuple[str, str] | None = None
"""The temporary folder of this process, and the folder that it replaced."""


class ScratchFolder:
    """A temporary folder with a lock, which is released when the process ends.

    The constructor first deletes this user's scratch folders whose lock is released.
    """

    def __init__(self, parent: str | None = None) -> None:
        """Creates and locks the folder.

        Args:
          parent: the parent folder, or None for the system's folder for temporary files.
        """
        _delete_abandoned(parent or tempfile.gettempdir())
        unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=parent))
        lock = os.open(unlocked, os.O_RDONLY)
        with suppress(OSError):  # Without locks, folders of killed processes remain.
            fcntl.flock(lock, fcntl.LOCK_EX)
        locked = unlocked.rename(unlocked.with_name(unlocked.name.replace(_UNLOCKED, PREFIX, 1)))
        self.name = str(locked)
        self._remove = weakref.finalize(self, _remove, self.name, lock, os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Deletes the folder and releases its lock; a second call does nothing."""
        self._remove()


@contextmanager
def own_temporary_files() -> Iterator[str]:
    """Makes this process and its children use a new folder for temporary files in a `with` block.

    The folder is deleted after the block. TensorFlow deletes its temporary files only if a process
    exits normally.
    """
    global _own
    before = os.environ.get(TMPDIR), tempfile.tempdir, _own
    outer_folder = lasting_folder()
    with ScratchFolder() as folder:
        _own = folder, outer_folder
        os.environ[TMPDIR] = tempfile.tempdir = folder
        try:
            yield folder
        finally:
            variable, tempfile.tempdir, _own = before
            if variable is None:
                del os.environ[TMPDIR]
            else:
                os.environ[TMPDIR] = variable


def lasting_folder() -> str:
    """Returns the folder for temporary files that outlive this process."""
    folder = tempfile.gettempdir()
    return _own[1] if _own and _own[0] == folder else folder


def _remove(folder: str, lock: int, process: int) -> None:
    if os.getpid() == process:  # A forked process must not delete the folder.
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _delete_abandoned(parent: str) -> None:
    for folder in Path(parent).glob(f"{PREFIX}*"):
        with suppress(OSError):  # Another process may delete the folder at the same time.
            _delete_unlocked(folder)


def _delete_unlocked(folder: Path) -> None:
    """Deletes a folder of this user, unless its lock is held.

    Raises:
      OSError: another process holds the lock, or the folder no longer exists.
    """
    if folder.stat().st_uid != os.getuid():
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
