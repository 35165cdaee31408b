"""The code that components run, Scopeline's and the user's: what it imports, and hashes of it.

Components name code by import path; without a hash of it in TFX's cache key, a changed function
would be served from cache. Nothing is imported to find out.
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
from pipeline.own_modules import NAMES, PACKAGES, ROOT, is_ours

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
    """Returns the source file of a module, without importing it or its packages; None if there
    is none.
    """
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
    """Returns the syntax tree of a file; None if it is not valid Python."""
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
    """Returns the source of a module, and of all modules that it imports, however far down.

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
        news = dict.fromkeys(_news(name, source))
        waiting += [name for name in news if name not in seen]
        seen.update(news)
    return list(found)


def _is_own(source: Path) -> bool:
    """Returns whether a file is part of neither a library nor our packages."""
    is_installed = not _INSTALLED.isdisjoint(source.parts)
    return not is_installed and not any(source.is_relative_to(folder) for folder in _OURS)


def _news(module: str, source: Path) -> Iterator[str]:
    """What may be modules among the names that a module imports, and the packages it is in."""
    parent = module.rpartition(".")[0]
    if parent:
        yield parent
    tree = parse_source(source)
    if tree is not None:
        package = module if source.name == "__init__.py" else parent
        names = _imports(tree.body, package)
        yield from (name for name in names if name.partition(".")[0] not in _STANDARD)


def resolve_relative(node: ast.ImportFrom, package: str) -> str:
    """Returns the module that names are imported from, whose leading dots count from a package."""
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


CODE_KEY = "code"
"""The key of the fingerprint in a component's `custom_config`."""
FILES_KEY = "files"
"""Likewise, of weights and vocabularies that it reads."""
MODELS = ("trainer_module.settings.model",)
"""The packages whose modules only components that build a model load by name."""


def own_sources(import_paths: Iterable[str]) -> list[Path]:
    """Returns the files of the user's code that import paths name, and of what these import."""
    return [s for path in import_paths for s in imported_sources(path.rpartition(".")[0])]


def code_fingerprint(
    roots: Iterable[str], import_paths: Iterable[str] = (), never_loads: Collection[str] = ()
) -> str:
    """Hashes modules of Scopeline and of the user's, with all modules that these import.

    Args:
      roots: the names of Scopeline's modules.
      import_paths: `module.function` each, of the user's.
      never_loads: packages whose modules the roots never load by name.
    """
    ours = import_closure(roots, ROOT, never_loads)
    return files_fingerprint([*(ours[name] for name in sorted(ours)), *own_sources(import_paths)])


def files_fingerprint(files: Iterable[Path]) -> str:
    """Hashes files with their names, in the order in which they are given."""
    digest = hashlib.sha256()
    for source in files:
        digest.update(source.name.encode())
        with source.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


_NAMED = re.compile(rf"""["']((?:{"|".join(PACKAGES)})(?:\.\w+)+)["']""")
"""A string that is the name of a module, or of something in it."""
_OWN_NAME = re.compile(r"""f["']\{__(?:name|package)__\}\.""")
"""Begins a string that names a module of the package that it is in."""


def import_closure(
    roots: Iterable[str], folder: Path, never_loads: Collection[str] = ()
) -> dict[str, Path]:
    """Returns the source of each module that some modules import, however far down, themselves
    included.

    An import inside a function counts, and so does a module that is named in a string, as
    registries and starters of child processes name them; a package that is named so counts with all
    of its modules. Imports for type checkers alone do not count.

    Args:
      roots: the names of modules of Scopeline.
      folder: the folder of Scopeline's packages.
      never_loads: packages whose modules the roots never load by name.

    Returns:
      Files by the names of their modules.

    Raises:
      FileNotFoundError: a root is no module.
    """
    waiting, found = [*roots], dict[str, Path]()
    for root in waiting:
        if _find(folder, root) is None:
            raise FileNotFoundError(f"there is no module {root} in {folder}")
    while waiting:
        name = waiting.pop()
        source = None if name in found else _find(folder, name)
        if source is None:
            continue
        found[name] = source
        package = name if source.name == "__init__.py" else name.rpartition(".")[0]
        stat = source.stat()
        imported, named = _read(source, package, (stat.st_mtime_ns, stat.st_size))
        waiting += [name.rpartition(".")[0], *imported]
        if name not in never_loads:
            # What components and trainer_module name of pipeline is for pipeline to load.
            loads = (text for text in named if _is_pipelines(name) or not _is_pipelines(text))
            waiting += (module for text in loads for module in _loadable(folder, text))
    return found


def _is_pipelines(name: str) -> bool:
    return name.partition(".")[0] == "pipeline"


def _find(folder: Path, name: str) -> Path | None:
    path = folder.joinpath(*name.split("."))
    for source in (path.with_suffix(".py"), path / "__init__.py"):
        if is_ours(name) and source.is_file():
            return source
    return None


@lru_cache(maxsize=2048)
def _read(source: Path, package: str, stamp: tuple[int, int]) -> tuple[list[str], list[str]]:
    """Returns the names that a file imports from our packages, and those in its strings."""
    del stamp  # A file that has changed is read again.
    text = source.read_text()
    named = _NAMED.findall(text) + ([package] if _OWN_NAME.search(text) else [])
    return [name for name in _imports(ast.parse(text).body, package) if is_ours(name)], named


def _imports(statements: Iterable[ast.stmt], package: str) -> Iterator[str]:
    """What may be modules among the names that statements import, and those in their blocks."""
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
    """Returns the modules that may be loaded by a name: of a package, all that are below it."""
    source = _find(folder, text)
    if source is None:
        return [text.rpartition(".")[0]]  # The rest names a function or a class.
    if source.name != "__init__.py":
        return [text]
    below = (p.relative_to(folder).with_suffix("").parts for p in source.parent.rglob("*.py"))
    return [".".join(p[:-1] if p[-1] == "__init__" else p) for p in below]
