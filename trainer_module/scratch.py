"""Folders for what is needed for a while, which nothing leaves behind, not even a kill."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "scopeline-scratch-"
"""Begins their names, in the folder for temporary files."""
YOUNG_SECONDS = 60.0
"""A folder may be so new that its process has not locked it yet."""


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder with a lock, which ends with its process however that ends.

    Whoever makes one deletes those that have no lock any more, of this user.
    """

    def __init__(self) -> None:
        """Makes the folder."""
        _delete_abandoned()
        super().__init__(prefix=PREFIX, ignore_cleanup_errors=True)
        self._lock = os.open(self.name, os.O_RDONLY)
        with suppress(OSError):  # A file system without locks keeps what a kill leaves.
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        """Deletes the folder, and ends its lock."""
        super().cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _delete_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # Another process may delete it, too.
            _delete_unlocked(folder)


def _delete_unlocked(folder: Path) -> None:
    """Deletes a folder of this user's that is not young, unless its lock is held.

    Raises:
      OSError: it is held, or the folder is gone.
    """
    found = folder.stat()
    if found.st_uid != os.getuid() or time.time() - found.st_ctime < YOUNG_SECONDS:
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
