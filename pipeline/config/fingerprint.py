"""Hashes that change with a config, or with the code that it names.

Components name code by import path; without a hash of it in TFX's cache key, a changed function
would be served from cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code.imported_modules import imported_sources

CODE_KEY = "code"
"""The key of the fingerprint in a component's `custom_config`."""
FILES_KEY = "files"
"""Likewise, of weights and vocabularies that it reads."""


NOT_ABOUT_THE_MODEL = set(ScheduleSettings.model_fields) - {
    "window",
    "missing_span",
    "warm_start",
}
"""Keys of `schedule` that say when and how often, not what comes of it."""

NOT_THE_MODEL: Any = {
    "notify": True,
    "schedule": NOT_ABOUT_THE_MODEL,
    "kubeflow": True,
    "log": True,
    "skew": True,
}


def config_fingerprint(config: PipelineConfig) -> str:
    """Changes with what may change the model, or where it goes."""
    text = config.model_dump_json(exclude=NOT_THE_MODEL)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def own_sources(config: PipelineConfig) -> list[Path]:
    """The files of the user's code that a config names, and of what these import."""
    return _sources(config.own_code.values())


def _sources(import_paths: Iterable[str]) -> list[Path]:
    return [s for path in import_paths for s in imported_sources(path.rpartition(".")[0])]


def code_fingerprint(code: Iterable[Path], import_paths: Iterable[str] = ()) -> str:
    """Hashes code of ours, and the modules that some functions of the user's come from.

    Args:
      code: files, or folders of Python files.
      import_paths: `module.function` each; what their modules import counts as well.
    """
    ours = [sorted(path.rglob("*.py")) if path.is_dir() else [path] for path in code]
    digest = hashlib.sha256()
    for source in [*chain(*ours), *_sources(import_paths)]:
        digest.update(source.name.encode())
        with source.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
