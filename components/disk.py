"""Writes files atomically, recognises errors of full disks, and measures free space."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from glob import escape
from pathlib import Path

from trainer_module.errors import DiskFullError

MAKE_ROOM = "free some space, or set another folder with --output"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_MESSAGES = tuple(map(os.strerror, _FULL))
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def is_disk_full(error: BaseException) -> bool:
    """Returns whether an error means that a disk or a quota is full.

    Errors of TensorFlow, Beam's workers and SQLite are recognised by their messages.
    """
    if isinstance(error, OSError):
        return first_error_of(error).errno in _FULL
    message = str(error)
    return "database or disk is full" in message or any(
        words in message for words in _FULL_MESSAGES
    )


def full_file(error: BaseException) -> str | None:
    """Returns the path of the file that could not be written to a full disk, or None if the error's
    message does not contain the path.
    """
    for words in _FULL_MESSAGES:
        match = re.search(rf"(\S[^\s;]*); {words}|{words}: '([^']+)'", str(error))
        if match is not None:
            return match[1] or match[2]
    return None


def first_error_of(error: OSError) -> OSError:
    """Returns the first error in a `shutil.Error`, which collects the errors of a copied folder.

    Other errors are returned unchanged.
    """
    if not isinstance(error, shutil.Error) or not isinstance(error.args[0], list):
        return error
    _, destination, message = error.args[0][0]
    codes = (code for code in errno.errorcode if f"[Errno {code}]" in str(message))
    code = next(codes, None)
    return error if code is None else OSError(code, os.strerror(code), str(destination))


def disk_full(path: Path) -> DiskFullError:
    """Returns the error for a file or folder that cannot be written, as the disk is full."""
    return DiskFullError(f"{path}: the disk is full ({free_space(path)}); {MAKE_ROOM}")


def free_space(path: Path) -> str:
    """Returns the free space as text, such as `4.1 MB are free`. The path need not exist."""
    folder = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    file_system = os.statvfs(folder)
    if file_system.f_files and not file_system.f_favail:
        return "the maximum number of files is reached"
    return f"{show_size(shutil.disk_usage(folder).free)} are free"


def show_size(size: int) -> str:
    """Returns a number of bytes in a readable unit, such as `4.1 MB`."""
    unit = next((unit for unit in _UNITS if size >= unit[1] / 10), _UNITS[-1])
    return f"{size / unit[1]:.1f} {unit[0]}"


def sizes_below(folder: Path) -> Iterator[int]:
    """Returns the sizes of the files in a folder and its subfolders."""
    return (path.stat().st_size for path in folder.rglob("*") if path.is_file())


_ABANDONED_SECONDS = 3600
"""The age from which a temporary file is one of a killed process; a write takes less than a second.
The age counts and not the process, which may be on another machine."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file under a temporary name, and then renames it. An existing file is replaced.

    Temporary files of the same name that killed processes have left are deleted.

    Raises:
      OSError: the file cannot be written. An existing file is not changed.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        scratch.replace(path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise
    with suppress(OSError):
        for abandoned in path.parent.glob(f".{escape(path.name)}.*.tmp"):
            if time.time() - abandoned.stat().st_mtime > _ABANDONED_SECONDS:
                abandoned.unlink()
