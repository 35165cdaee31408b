"""Checks that the library internals that this project replaces or reads are unchanged.

The name of an internal has the form of an entry point, `package.module:Class.function`. A
fingerprint of its source identifies the internal. If another version of a library renames, moves or
changes an internal, the fingerprint differs or is missing. The calling code then raises an error,
or does without the internal.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import CellType, FunctionType
from typing import Any, TypeAlias

from trainer_module.errors import InternalError

Known: TypeAlias = Mapping[str, Mapping[str, str]]
"""The expected fingerprints, by module, then by the name of a function or class in it."""

logger = logging.getLogger(__name__)

_OWN_MODULES = ("components.", "trainer_module.")
_DIGITS = 12
_MISSING = "is missing"


def find_changes(known: Known) -> list[str]:
    """Returns the internals that differ from their fingerprints, or an empty list.

    Args:
      known: the fingerprints, from `fingerprint_of`. A function that a module of this project has
        replaced counts as unchanged, because it was checked before it was replaced.

    Returns:
      A clause for each changed internal: `tfx.utils.io_utils:SchemaReader.read is missing`.
    """
    clauses = (
        (f"{module}:{path}", _find_change(module, path, expected))
        for module, fingerprints in known.items()
        for path, expected in fingerprints.items()
    )
    return [f"{name} {clause}" for name, clause in clauses if clause]


def is_known(known: Known, instead: str) -> bool:
    """Returns whether internals are unchanged; logs the slower alternative if they are not.

    Args:
      known: the fingerprints, as for `find_changes`.
      instead: the slower alternative, as the log line's words after `slower, `.
    """
    changes = find_changes(known)
    if changes:
        logger.warning("slower, %s: %s", instead, "; ".join(changes))
    return not changes


def require_known(known: Known, purpose: str) -> None:
    """Raises an error if an internal has changed.

    Args:
      known: the fingerprints, as for `find_changes`.
      purpose: the feature that would be wrong, such as `optimize.prune`.

    Raises:
      InternalError: an internal differs from its fingerprint.
    """
    if changes := find_changes(known):
        raise unknown_inside(purpose, "; ".join(changes))


def unknown_inside(purpose: str, difference: str) -> InternalError:
    """Returns the error for results that would be wrong with the installed version of a library.

    Args:
      purpose: the feature that would be wrong.
      difference: a clause that names the difference.
    """
    return InternalError(
        f"{purpose} cannot be relied on with the installed libraries: {difference}; install the"
        " versions in uv.lock."
    )


def fingerprint_of(inside: Any) -> str:
    """Returns the fingerprint of the source of a function or of a class's functions.

    The fingerprint is empty if there is no source.
    """
    sources = [_source(function) for function in _functions(inside)]
    if not sources or not all(sources):
        return ""
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:_DIGITS]


def _find_change(module: str, path: str, expected: str) -> str:
    try:
        inside = attrgetter(path)(import_module(module))
    except (ImportError, AttributeError):
        return _MISSING
    if any(function.__module__.startswith(_OWN_MODULES) for function in _functions(inside)):
        return ""
    found = fingerprint_of(inside)
    return "" if found == expected else f"has the fingerprint {found or 'none'}, not {expected}"


def _functions(inside: Any) -> list[FunctionType]:
    """Returns a function or a class's functions, and the functions that their decorators wrap."""
    found: dict[FunctionType, None] = {}
    waiting = [*vars(inside).values()] if isinstance(inside, type) else [inside]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, property):
            waiting += [part.fget, part.fset]
            continue
        function = inspect.unwrap(getattr(part, "__func__", part))
        if isinstance(function, FunctionType) and function not in found:
            found[function] = None
            waiting += map(_content, function.__closure__ or ())
    return list(found)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # The cell is still empty.
        return None


@cache
def _source(function: FunctionType) -> str:
    # `inspect.getsource` is slower, because it searches all modules for the file.
    lines = linecache.getlines(function.__code__.co_filename)
    return "".join(inspect.getblock(lines[function.__code__.co_firstlineno - 1 :])) if lines else ""
