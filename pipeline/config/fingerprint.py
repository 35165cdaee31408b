"""Hashes that change with the code that components run, Scopeline's and the user's, and with files.

Components name code by import path; without a hash of it in TFX's cache key, a changed function
would be served from cache.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from pipeline.config.user_code import imported_sources, resolve_relative
from pipeline.own_modules import PACKAGES, ROOT, is_ours

CODE_KEY = "code"
"""The key of the fingerprint in a component's `custom_config`."""
FILES_KEY = "files"
"""Likewise, of weights and vocabularies that it reads."""
MODELS = ("trainer_module.settings.model",)
"""The packages whose modules only components that build a model load by name."""


def own_sources(import_paths: Iterable[str]) -> list[Path]:
    """The files of the user's code that import paths name, and of what these import."""
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
    """The source of each module that some modules import, however far down, themselves included.

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
    """The names that a file imports from our packages, and those in its strings."""
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
    """The modules that may be loaded by a name: of a package, all that are below it."""
    source = _find(folder, text)
    if source is None:
        return [text.rpartition(".")[0]]  # The rest names a function or a class.
    if source.name != "__init__.py":
        return [text]
    below = (p.relative_to(folder).with_suffix("").parts for p in source.parent.rglob("*.py"))
    return [".".join(p[:-1] if p[-1] == "__init__" else p) for p in below]
