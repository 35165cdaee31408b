"""Copies folders, and reads and writes small files. Locations are paths or URIs."""

from __future__ import annotations

import posixpath

from tfx.dsl.io import fileio


def copy_folder(source: str, target: str) -> None:
    """Copies all files in a folder and its subfolders.

    Args:
      target: the path or URI of the target folder. If it exists, files with the same names are
        replaced.
    """
    for folder, _, files in fileio.walk(source):
        relative = posixpath.relpath(folder, source)
        copy = target if relative == posixpath.curdir else posixpath.join(target, relative)
        fileio.makedirs(copy)
        for name in files:
            fileio.copy(posixpath.join(folder, name), posixpath.join(copy, name), overwrite=True)


def read_text(*parts: str) -> str | None:
    """Returns the text of a file, or None if the file does not exist.

    Args:
      parts: the path or URI of the file, or its parts, which are joined.
    """
    path = posixpath.join(*parts)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "r") as file:
        return str(file.read())


def write_text(text: str, *parts: str) -> None:
    """Writes a file, and creates its folder if the folder does not exist."""
    path = posixpath.join(*parts)
    fileio.makedirs(posixpath.dirname(path) or posixpath.curdir)
    with fileio.open(path, "w") as file:
        file.write(text)
