"""Finds the source files of the code that components run, and computes hashes of that code.

Components name functions by import path. TFX's cache keys contain a hash of the code of Scopeline
and of the user, so that a component runs again if its code has changed. The modules are parsed, not
imported.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pipeline.config.issues import Issue
from pipeline.own_modules import NAMES, PACKAGES, ROOT, is_own_module

_ANY_NAME = ("*", "__getattr__")
"""Definitions through which a module may provide any name: a star import and `__getattr__`."""


def import_paths_exist(own_code: dict[str, str]) -> Iterator[Issue]:
    """Checks that modules of import paths exist and define the names, without importing them."""
    for key, path in own_code.items():
        yield from check_import_path(key, path)


def check_import_path(key: str, path: str) -> Iterator[Issue]:
    """Yields the problems of the import path that a key has."""
    module, _, function = path.rpartition(".")
    if not module or not all(part.isidentifier() for part in path.split(".")):
        yield Issue(key, f"found {path!r}; expected module.function, such as my_code.my_function")
        return
    source = find_source(module)
    if source is None:
        package = module.partition(".")[0]
        hint = f"; `{package}` is a package of Scopeline: rename yours" if package in NAMES else ""
        yield Issue(
            key,
            f"found {path!r}; there is no module `{module}` in {Path.cwd()} or among the installed "
            f"packages{hint}",
        )
        return
    tree = parse_source(source)
    if tree is None:
        yield Issue(key, f"found {path!r}; {source} is not valid Python: try `python {source}`")
    elif not set(_bound_names(tree)) & {function, *_ANY_NAME}:
        yield Issue(key, f"found {path!r}; {source} defines no `{function}`")


def find_source(module: str) -> Path | None:
    """Returns a module's source file without importing the module, or None if there is none."""
    relative = Path(*module.split("."))
    for folder in map(Path, sys.path):
        for candidate in (folder / relative / "__init__.py", folder / relative.with_suffix(".py")):
            if candidate.is_file():
                return candidate.resolve()
        if (folder / relative.parts[0] / "__init__.py").is_file():
            return None  # Python searches the rest of the name in this package only.
    if "." in module:
        return None
    spec = None
    with suppress(ValueError):  # Modules such as __main__ have no spec.
        spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def parse_source(source: Path) -> ast.Module | None:
    """Returns the syntax tree of a file, or None if it is not valid Python."""
    try:
        return ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):  # Null bytes may raise ValueError.
        return None


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines at its top level, also within `if` and `try`."""
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
"""Folder names of installed libraries, in any Python installation."""


def imported_sources(module: str) -> list[Path]:
    """Returns the source files of a module and of all modules that it imports, directly or not.

    Files are parsed, not imported, so names that are computed at runtime are not found. Libraries
    and Scopeline's packages are left out: libraries have versions, and `import_closure` covers
    Scopeline.

    Args:
      module: the import path of the module; if the module is part of an installed package, the
        result contains this package's modules.

    Returns:
      The files in the order of their discovery, or an empty list if there is no such module.
    """
    package = module.partition(".")[0]
    sources: dict[Path, None] = {}
    waiting, queued = [module], {module}
    while waiting:
        name = waiting.pop()
        source = find_source(name)
        if source is None or not (name.partition(".")[0] == package or _is_own(source)):
            continue
        sources[source] = None
        possible = dict.fromkeys(_possible_modules(name, source))
        waiting += [name for name in possible if name not in queued]
        queued.update(possible)
    return list(sources)


def _is_own(source: Path) -> bool:
    """Returns whether a file belongs neither to a library nor to Scopeline's packages."""
    is_installed = not _INSTALLED.isdisjoint(source.parts)
    return not is_installed and not any(source.is_relative_to(folder) for folder in _OURS)


def _possible_modules(module: str, source: Path) -> Iterator[str]:
    """Yields the parent package of a module, and all names in its imports that may be modules."""
    parent = module.rpartition(".")[0]
    if parent:
        yield parent
    tree = parse_source(source)
    if tree is not None:
        package = module if source.name == "__init__.py" else parent
        names = _imports(tree.body, package)
        yield from (name for name in names if name.partition(".")[0] not in _STANDARD)


def resolve_relative(node: ast.ImportFrom, package: str) -> str:
    """Returns the absolute name of the module in a `from` import of a module in a package."""
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


CODE_KEY = "code"
"""The key in a component's `custom_config` of the hash of its code."""
FILES_KEY = "files"
"""The key in a component's `custom_config` of the hash of weights and vocabularies."""
MODELS = ("trainer_module.settings.model", "trainer_module.families")
"""Packages that load modules by name only in components that build a model."""


def own_sources(import_paths: Iterable[str]) -> list[Path]:
    """Returns the source files of the user's modules in import paths, and of all their imports."""
    return [s for path in import_paths for s in imported_sources(path.rpartition(".")[0])]


def code_fingerprint(
    roots: Iterable[str], import_paths: Iterable[str] = (), never_loads: Collection[str] = ()
) -> str:
    """Returns a hash of modules of Scopeline and of the user, and of all modules they import.

    Args:
      roots: the names of modules of Scopeline.
      import_paths: `module.function` paths of the user's code.
      never_loads: modules whose strings are ignored, as the roots load nothing by these names.
    """
    modules = import_closure(roots, ROOT, never_loads)
    return files_fingerprint(
        [*(modules[name] for name in sorted(modules)), *own_sources(import_paths)]
    )


def files_fingerprint(files: Iterable[Path]) -> str:
    """Returns a hash of files and their names, in the given order."""
    digest = hashlib.sha256()
    for source in files:
        digest.update(source.name.encode())
        with source.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


_NAMED = re.compile(rf"""["']((?:{"|".join(PACKAGES)})(?:\.\w+)+)["']""")
"""A pattern of strings that contain the name of a module, or of a function or class in a module."""
_OWN_NAME = re.compile(r"""f["']\{__(?:name|package)__\}\.""")
"""A pattern of f-strings that contain the name of a module in the same package."""


def import_closure(
    roots: Iterable[str], folder: Path, never_loads: Collection[str] = ()
) -> dict[str, Path]:
    """Returns the source files of the roots and of all modules that they import, directly or not.

    The result includes imports inside functions, and modules whose names are in strings, as in
    registries and in commands of child processes. If a string contains the name of a package, the
    result includes all its modules. The result does not include imports for type checkers.

    Args:
      roots: the names of modules of Scopeline.
      folder: the folder of Scopeline's packages.
      never_loads: modules whose strings are ignored, as the roots load nothing by these names.

    Returns:
      The source files by module name.

    Raises:
      FileNotFoundError: a root is not a module.
    """
    waiting, visited, sources = [*roots], set[str](), dict[str, Path]()
    for root in waiting:
        if _find(folder, root) is None:
            raise FileNotFoundError(f"there is no module {root} in {folder}")
    while waiting:
        name = waiting.pop()
        if name in visited:
            continue
        visited.add(name)
        source = _find(folder, name)
        if source is None:
            continue
        sources[name] = source
        package = name if source.name == "__init__.py" else name.rpartition(".")[0]
        stat = source.stat()
        imported, named = _read(source, package, (stat.st_mtime_ns, stat.st_size))
        waiting += [name.rpartition(".")[0], *imported]
        if name not in never_loads:
            # Other packages contain names of modules in `pipeline`, but only `pipeline` loads them.
            loaded = (
                text for text in named if _is_pipeline_module(name) or not _is_pipeline_module(text)
            )
            waiting += (module for text in loaded for module in _loadable(folder, text))
    return sources


def _is_pipeline_module(name: str) -> bool:
    return name.partition(".")[0] == "pipeline"


def _find(folder: Path, name: str) -> Path | None:
    path = folder.joinpath(*name.split("."))
    for source in (path.with_suffix(".py"), path / "__init__.py"):
        if is_own_module(name) and source.is_file():
            return source
    return None


@lru_cache(maxsize=2048)
def _read(source: Path, package: str, stamp: tuple[int, int]) -> tuple[list[str], list[str]]:
    """Returns the names that a file imports from our packages, and the module names in its strings.

    Args:
      package: the package that contains the file.
      stamp: the modification time and size, so that a changed file is not taken from the cache.
    """
    del stamp
    text = source.read_text()
    named = _NAMED.findall(text) + ([package] if _OWN_NAME.search(text) else [])
    return [name for name in _imports(ast.parse(text).body, package) if is_own_module(name)], named


def _imports(statements: Iterable[ast.stmt], package: str) -> Iterator[str]:
    """Yields the imported names that may be modules, from statements and their nested blocks."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_relative(node, package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from _imports(node.orelse, package)
        else:
            for block in ("body", "orelse", "handlers", "finalbody", "cases"):
                yield from _imports(getattr(node, block, ()), package)


def _loadable(folder: Path, text: str) -> list[str]:
    """Returns the module of a name, or all modules of a package."""
    source = _find(folder, text)
    if source is None:
        return [text.rpartition(".")[0]]  # The last part is a function or a class.
    if source.name != "__init__.py":
        return [text]
    below = (p.relative_to(folder).with_suffix("").parts for p in source.parent.rglob("*.py"))
    return [".".join(p[:-1] if p[-1] == "__init__" else p) for p in below]
