"""What code a component runs, as a hash that is part of TFX's cache key.

Components name code by import path; without this a changed function would be served from cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pipeline.config import PipelineConfig
from pipeline.rules import find_source

CODE_KEY = "code"
"""The key of the fingerprint in a component's `custom_config`."""


def own_sources(config: PipelineConfig) -> list[Path]:
    """The files of the user's code that a config names."""
    builder = config.model.kind if config.model.is_custom else None
    return _sources(path for path in (config.preprocessing, builder) if path)


def _sources(import_paths: Iterable[str]) -> list[Path]:
    found = (find_source(path.rpartition(".")[0]) for path in import_paths)
    return [source for source in found if source is not None]


def code_fingerprint(package: Path, import_paths: Iterable[str] = ()) -> str:
    """Hashes a package of ours and the modules that hold some functions of the user's.

    Args:
      package: a folder of Python files.
      import_paths: `module.function` each.
    """
    sources = sorted(package.rglob("*.py")) + _sources(import_paths)
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode())
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]
