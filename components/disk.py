"""Files on disks: atomic writes, the detection of full disks, and free space."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainer_module.errors import DiskFullError

MAKE_ROOM = "make room, or give another folder with --output"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_MESSAGES = tuple(map(os.strerror, _FULL))
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def is_disk_full(error: BaseException) -> bool:
    """Returns whether an error means that a disk or a quota is full.

    Errors of TensorFlow, of Beam's workers and of SQLite are recognised by their messages.
    """
    if isinstance(error, OSError):
        return first_error_of(error).errno in _FULL
    message = str(error)
    return "database or disk is full" in message or any(
        words in message for words in _FULL_MESSAGES
    )


def full_file(error: BaseException) -> str | None:
    """Returns the file that could not be written to a full disk, if the error's text names one."""
    for words in _FULL_MESSAGES:
        match = re.search(rf"(\S[^\s;]*); {words}|{words}: '([^']+)'", str(error))
        if match is not None:
            return match[1] or match[2]
    return None


def first_error_of(error: OSError) -> OSError:
    """Returns the first of the errors that copying a folder collects, with its errno and the file.

    Other errors are returned unchanged.
    """
    if not isinstance(error, shutil.Error) or not isinstance(error.args[0], list):
        return error
    _, destination, message = error.args[0][0]
    known = (code for code in errno.errorcode if f"[Errno {code}]" in str(message))
    code = next(known, None)
    return error if code is None else OSError(code, os.strerror(code), str(destination))


def disk_full(path: Path) -> DiskFullError:
    """Returns the error for a file or folder that cannot be written to a full disk."""
    return DiskFullError(f"{path}: the disk is full ({free_space(path)}); {MAKE_ROOM}")


def free_space(path: Path) -> str:
    """Returns the free space at a path that may not exist yet, such as `4.1 MB are free`."""
    place = next(place for place in (path, *path.absolute().parents) if place.exists())
    files = os.statvfs(place)
    if files.f_files and not files.f_favail:
        return "no more files fit on it"
    return f"{show_size(shutil.disk_usage(place).free)} are free"


def show_size(size: int) -> str:
    """Returns a number of bytes in a readable unit, such as `4.1 MB`."""
    unit = next((unit for unit in _UNITS if size >= unit[1] / 10), _UNITS[-1])
    return f"{size / unit[1]:.1f} {unit[0]}"


def sizes_below(folder: Path) -> Iterator[int]:
    """Returns the sizes of the files in a folder, at any depth."""
    return (path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file atomically, by a rename at the end; replaces an existing one.

    Raises:
      OSError: the file cannot be written; an existing one is unchanged.
    """
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_bytes(content.encode() if isinstance(content, str) else content)
    scratch.replace(path)
