"""Stamps: hashes that change with values, or with files, which are looked at and not read."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def stamp_of(*values: object) -> str:
    """Changes with values, as they are written in Python."""
    return hashlib.sha256(repr(values).encode(errors="replace")).hexdigest()[:16]


def stamp_of_files(paths: Iterable[Path]) -> str:
    """Changes with the names, sizes and times of files and of all that is below folders.

    Hidden files count. Of a folder only the name does, so that a file that comes and goes leaves no
    trace.

    Raises:
      OSError: there is something that cannot be looked at.
    """
    digest = hashlib.sha256()
    for path in paths:
        for name, state in _walk(path):
            seen = f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n" if state else f"{name}\n"
            digest.update(seen.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _walk(path: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """A path, and all below it, in order; a folder, and what is not there, has no state."""
    try:
        state = path.stat()
    except FileNotFoundError:
        yield f"no {path}", None
        return
    if stat.S_ISDIR(state.st_mode):
        yield from _walk_folder(str(path))
    else:
        yield str(path), state


def _walk_folder(folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    yield folder, None
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk_folder(entry.path)
        else:
            # A link that leads nowhere is stamped itself.
            is_there = not entry.is_symlink() or Path(entry.path).exists()
            yield entry.path, entry.stat(follow_symlinks=is_there)


def stamp_of_packages() -> str:
    """Changes with Python, and with the versions of the packages that it finds."""
    found = []
    for folder in dict.fromkeys(Path(folder).resolve() for folder in sys.path):
        try:
            names = [path.name for path in folder.iterdir()]
        except OSError:
            continue  # Python leaves it out as well.
        # The names of these folders hold the versions.
        if versions := sorted(n for n in names if n.endswith((".dist-info", ".egg-info", ".egg"))):
            found.append(versions)
    return stamp_of(sys.version, sys.prefix, found)


def stamp_of_environment(
    environ: Mapping[str, str], prefixes: tuple[str, ...], names: Iterable[str]
) -> str:
    """Changes with the variables of some names, and with those that begin with a prefix."""
    known = frozenset(names)
    chosen = (name for name in environ if name in known or name.startswith(prefixes))
    return stamp_of([(name, environ[name]) for name in sorted(chosen)])
