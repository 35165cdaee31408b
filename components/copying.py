"""Copies folders to and from wherever artifacts are."""

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
