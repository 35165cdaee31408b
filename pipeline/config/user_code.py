"""The code of the user's that a config names: where it is, and what it imports; it is not run."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pipeline.config.issues import Issue
from pipeline.own_modules import NAMES, PACKAGES, ROOT

_ANY_NAME = ("*", "__getattr__")
"""A module that imports a star, or makes names when they are asked for, may have any."""


def import_paths_lead_somewhere(own_code: dict[str, str]) -> Iterator[Issue]:
    """Code of the user's, and a family's, is found before anything runs, without running it."""
    for key, path in own_code.items():
        yield from check_import_path(key, path)


def check_import_path(key: str, path: str) -> Iterator[Issue]:
    """What is wrong with the import path that a key has: nothing where it leads somewhere."""
    module, _, function = path.rpartition(".")
    if not module or not all(part.isidentifier() for part in path.split(".")):
        yield Issue(key, f"found {path!r}; right is module.function, such as my_code.my_function")
        return
    source = find_source(module)
    if source is None:
        package = module.partition(".")[0]
        hint = (
            f"; `{package}` is a package of Scopeline's: rename yours" if package in NAMES else ""
        )
        yield Issue(
            key,
            f"found {path!r}; there is no module `{module}` here or among the installed packages"
            f"{hint}",
        )
        return
    tree = parse_source(source)
    if tree is None:
        yield Issue(key, f"found {path!r}; {source} is not valid Python: try `python {source}`")
    elif not set(_bound_names(tree)) & {function, *_ANY_NAME}:
        yield Issue(key, f"found {path!r}; {source} defines no `{function}`")


def find_source(module: str) -> Path | None:
    """The source file of a module, without importing it or its packages; None if there is none."""
    relative = Path(*module.split("."))
    for folder in map(Path, sys.path):
        for candidate in (folder / relative / "__init__.py", folder / relative.with_suffix(".py")):
            if candidate.is_file():
                return candidate.resolve()
        if (folder / relative.parts[0] / "__init__.py").is_file():
            return None  # Python looks for the rest of the name in this package alone.
    if "." in module:
        return None
    spec = None
    with suppress(ValueError):  # Modules such as __main__ are there, and come from nowhere.
        spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def parse_source(source: Path) -> ast.Module | None:
    """The syntax tree of a file; None if it is not valid Python."""
    try:
        return ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):  # Of null bytes, and of text that is not UTF-8.
        return None


def _bound_names(node: ast.AST) -> Iterator[str]:
    """What a node and those below it bind in their module, also where an `if` or `try` decides."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif not (isinstance(node, ast.AnnAssign) and node.value is None):
        for child in ast.iter_child_nodes(node):
            yield from _bound_names(child)


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
