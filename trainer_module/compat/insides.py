"""Whether the code of other libraries that ours replaces or goes by is still the code it knows.

An inside is named as entry points are, `package.module:Class.function`, and known by a print of its
source. What is renamed, moved or changed in another version of a library has another print or none,
so that whoever relies on it can refuse, or leave the library as it is.
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
"""By module, then by the name of a function or class in it, the print that it is known by."""

logger = logging.getLogger(__name__)

_OURS = ("components.", "trainer_module.")
_DIGITS = 12
_MISSING = "is missing"


def find_changes(known: Known) -> list[str]:
    """What is not as known of some insides; empty if all are.

    Args:
      known: the prints, as `print_of` gives them. What a module of ours has replaced is taken for
        known, as it was when it was replaced.

    Returns:
      A clause for each that differs: `tfx.utils.io_utils:SchemaReader.read is missing`.
    """
    clauses = (
        (f"{module}:{path}", _change(module, path, expected))
        for module, prints in known.items()
        for path, expected in prints.items()
    )
    return [f"{name} {clause}" for name, clause in clauses if clause]


def is_known(known: Known, instead: str) -> bool:
    """Returns whether insides are as known; a line in the log says where a library's slower way is
    taken.

    Args:
      known: likewise.
      instead: the slower way, after `slower, `.
    """
    changes = find_changes(known)
    if changes:
        logger.warning("slower, %s: %s", instead, "; ".join(changes))
    return not changes


def require_known(known: Known, purpose: str) -> None:
    """Refuses to go on where insides are not as known.

    Args:
      known: likewise.
      purpose: what would come out wrong, such as `optimize.prune`.

    Raises:
      InternalError: one of them differs.
    """
    if changes := find_changes(known):
        raise unknown_inside(purpose, "; ".join(changes))


def unknown_inside(purpose: str, what: str) -> InternalError:
    """Returns the error for results that would be wrong with the installed version of a library.

    Args:
      purpose: what would come out wrong.
      what: a clause that says what is not as known.
    """
    return InternalError(
        f"{purpose} cannot be relied on with the installed libraries: {what}; install the versions"
        " of uv.lock."
    )


def print_of(inside: Any) -> str:
    """Returns the print of a function's source, or of all functions of a class; empty without a
    source.
    """
    sources = [_source(function) for function in _functions(inside)]
    if not sources or not all(sources):
        return ""
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:_DIGITS]


def _change(module: str, path: str, expected: str) -> str:
    try:
        inside = attrgetter(path)(import_module(module))
    except (ImportError, AttributeError):
        return _MISSING
    if any(function.__module__.startswith(_OURS) for function in _functions(inside)):
        return ""
    found = print_of(inside)
    return "" if found == expected else f"has the print {found or 'none'}, known is {expected}"


def _functions(inside: Any) -> list[FunctionType]:
    """Returns a function, those of a class, and those that decorators have put others around."""
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
    except ValueError:  # Nothing has been put there yet.
        return None


@cache
def _source(function: FunctionType) -> str:
    # As `inspect.getsource` does, which looks through all modules for the file.
    lines = linecache.getlines(function.__code__.co_filename)
    return "".join(inspect.getblock(lines[function.__code__.co_firstlineno - 1 :])) if lines else ""
