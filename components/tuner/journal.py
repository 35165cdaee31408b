"""Where a study is kept: a file of lines that a kill at whatever moment leaves readable."""

from __future__ import annotations

import os

from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

LOCK_SUFFIX = ".lock"


class _Lock(JournalFileOpenLock):
    """The kernel's own, which ends with its process; Optuna's would be waited for.

    Of Optuna's it has the type alone, since what both are derived from is not public.
    Whoever was killed while it wrote may have left half a line, which nobody could read past.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = FileLock(path + LOCK_SUFFIX)

    def acquire(self) -> bool:
        """Waits for the lock; then the file ends with a whole line."""
        self._lock.acquire()
        cut_half_line(self._path)
        return True

    def release(self) -> None:
        """Gives it to the next one."""
        self._lock.release()


def open_journal(path: str) -> JournalStorage:
    """The storage of a study, for one process of several.

    Args:
      path: of the file, in a folder that exists; it is made if it is not there.
    """
    return JournalStorage(JournalFileBackend(path, lock_obj=_Lock(path)))


def cut_half_line(path: str) -> None:
    """Takes what follows the last end of a line off a file."""
    if not os.path.exists(path):
        return
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
