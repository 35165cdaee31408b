"""Copies folders, and reads and writes small files, wherever artifacts are."""

from __future__ import annotations

import posixpath

from tfx.dsl.io import fileio


def copy_folder(source: str, target: str) -> None:
    """Copies all files below a folder; each side is a path or a URI.

    Args:
      source: the folder.
      target: is made if need be; files of the same names are replaced.
    """
    for place, _, files in fileio.walk(source):
        below = posixpath.relpath(place, source)
        into = target if below == posixpath.curdir else posixpath.join(target, below)
        fileio.makedirs(into)
        for name in files:
            fileio.copy(posixpath.join(place, name), posixpath.join(into, name), overwrite=True)


def read_text(*place: str) -> str | None:
    """Returns the text of a file; None if it is not there.

    Args:
      place: its path or URI, or the parts of it.
    """
    path = posixpath.join(*place)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "r") as file:
        return str(file.read())


def write_text(text: str, *place: str) -> None:
    """Writes a file, in a folder that is made if need be.

    Args:
      text: of the file.
      place: its path or URI, or the parts of it.
    """
    path = posixpath.join(*place)
    fileio.makedirs(posixpath.dirname(path))
    with fileio.open(path, "w") as file:
        file.write(text)
