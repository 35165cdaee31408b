"""Temporary folders that are deleted at the latest by a later process, even after a kill."""

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
TMPDIR = "TMPDIR"
"""The environment variable of the folder for temporary files."""
_own: tuple[str, str] | None = None
"""The temporary folder of this process, and the folder that it replaced."""


class ScratchFolder:
    """A temporary folder with a lock that the end of its process releases.

    A new one first deletes this user's folders whose lock is released.
    """

    def __init__(self, parent: str | None = None) -> None:
        """Creates and locks the folder.

        Args:
          parent: the parent folder; None for the folder for temporary files.
        """
        _delete_abandoned(parent or tempfile.gettempdir())
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=parent))
        lock = os.open(made, os.O_RDONLY)
        with suppress(OSError):  # A file system without locks keeps folders of killed processes.
            fcntl.flock(lock, fcntl.LOCK_EX)
        named = made.rename(made.with_name(made.name.replace(_UNLOCKED, PREFIX, 1)))
        self.name = str(named)
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
    """Gives this process and its children a temporary folder of their own within a `with` block.

    It is deleted afterwards, as TensorFlow deletes its temporary files only if a process exits
    normally.
    """
    global _own
    before = os.environ.get(TMPDIR), tempfile.tempdir, _own
    lasting = lasting_folder()
    with ScratchFolder() as folder:
        _own = folder, lasting
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
    if os.getpid() == process:  # Not a fork of it.
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _delete_abandoned(parent: str) -> None:
    for folder in Path(parent).glob(f"{PREFIX}*"):
        with suppress(OSError):  # Another process may delete it, too.
            _delete_unlocked(folder)


def _delete_unlocked(folder: Path) -> None:
    """Deletes a folder of this user, unless its lock is held.

    Raises:
      OSError: the lock is held, or the folder is gone.
    """
    if folder.stat().st_uid != os.getuid():
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
