"""What code a component runs, as a hash that is part of TFX's cache key.

Components name code by import path; without this a changed function would be served from cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pipeline.rules import find_source

CODE_KEY = "code"
"""The key of the fingerprint in a component's `custom_config`."""


def code_fingerprint(package: Path, import_paths: Iterable[str] = ()) -> str:
    """Hashes a package of ours and the modules that hold some functions of the user's.

    Args:
      package: a folder of Python files.
      import_paths: `module.function` each.
    """
    sources = sorted(package.rglob("*.py"))
    for path in import_paths:
        source = find_source(path.rpartition(".")[0])
        if source is not None:
            sources.append(source)
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode())
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]
