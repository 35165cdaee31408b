"""The files of the user's code: the modules that a config names, and those that they import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline.config.user_code.import_paths import find_source, parse_source
from pipeline.own_modules import PACKAGES, ROOT

_OURS = [ROOT / name for name in PACKAGES]
_STANDARD = {*sys.stdlib_module_names, ""}
_INSTALLED = {"site-packages", "dist-packages"}
"""Folders of libraries, whoever's Python they belong to."""


def imported_sources(module: str) -> list[Path]:
    """The source of a module, and of all modules that it imports, however far down.

    Nothing is imported for that, so what a module imports by a name that it computes is not seen.
    Libraries and packages of ours are left out: they come with versions, or are seen otherwise.

    Args:
      module: its import path; it may itself be part of an installed package, whose modules count.

    Returns:
      Files in the order in which they were found; empty if there is no such module.
    """
    package = module.partition(".")[0]
    found: dict[Path, None] = {}
    waiting, seen = [module], {module}
    while waiting:
        name = waiting.pop()
        source = find_source(name)
        if source is None or not (name.partition(".")[0] == package or _is_own(source)):
            continue
        found[source] = None
        news = dict.fromkeys(_imports(name, source))
        waiting += [name for name in news if name not in seen]
        seen.update(news)
    return list(found)


def _is_own(source: Path) -> bool:
    """Whether a file is part of neither a library nor our packages."""
    is_installed = not _INSTALLED.isdisjoint(source.parts)
    return not is_installed and not any(source.is_relative_to(folder) for folder in _OURS)


def _imports(module: str, source: Path) -> Iterator[str]:
    """What may be modules among the names that a module imports, and the packages it is in."""
    parent = module.rpartition(".")[0]
    if parent:
        yield parent
    tree = parse_source(source)
    if tree is None:
        return
    package = module if source.name == "__init__.py" else parent
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_relative(node, package)
            # Each name may be a module of that package, or something in it.
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] not in _STANDARD)


def resolve_relative(node: ast.ImportFrom, package: str) -> str:
    """The module that names are imported from, whose leading dots count from a package."""
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])
