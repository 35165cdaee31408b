"""Copies folders, and reads and writes small files, at paths and URIs."""

from __future__ import annotations

import posixpath

from tfx.dsl.io import fileio


def copy_folder(source: str, target: str) -> None:
    """Copies all files below a folder; each side is a path or a URI.

    Args:
      source: the folder.
      target: the target folder, which is created if need be; files of the same names are replaced.
    """
    for place, _, files in fileio.walk(source):
        below = posixpath.relpath(place, source)
        into = target if below == posixpath.curdir else posixpath.join(target, below)
        fileio.makedirs(into)
        for name in files:
            fileio.copy(posixpath.join(place, name), posixpath.join(into, name), overwrite=True)


def read_text(*place: str) -> str | None:
    """Returns the text of a file; None if it does not exist.

    Args:
      place: the path or URI, or its parts.
    """
    path = posixpath.join(*place)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "r") as file:
        return str(file.read())


def write_text(text: str, *place: str) -> None:
    """Writes a file, in a folder that is created if need be.

    Args:
      text: the content.
      place: the path or URI, or its parts.
    """
    path = posixpath.join(*place)
    fileio.makedirs(posixpath.dirname(path))
    with fileio.open(path, "w") as file:
        file.write(text)
