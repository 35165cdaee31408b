"""Hashes that change with a config, or with the code that it names.

Components name code by import path; without a hash of it in TFX's cache key, a changed function
would be served from cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from pipeline.config.import_closure import import_closure
from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code.imported_modules import imported_sources
from pipeline.own_modules import ROOT

CODE_KEY = "code"
"""The key of the fingerprint in a component's `custom_config`."""
FILES_KEY = "files"
"""Likewise, of weights and vocabularies that it reads."""
MODELS = ("trainer_module.settings.model",)
"""The packages whose modules only components that build a model load by name."""


NOT_ABOUT_THE_MODEL = set(ScheduleSettings.model_fields) - {
    "window",
    "missing_span",
    "warm_start",
}
"""Keys of `schedule` that say when and how often, not what comes of it."""

NOT_THE_MODEL: Any = {
    "beam": True,
    "notify": True,
    "schedule": NOT_ABOUT_THE_MODEL,
    "kubeflow": True,
    "requests": True,
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
    return files_fingerprint([*(ours[name] for name in sorted(ours)), *_sources(import_paths)])


def files_fingerprint(files: Iterable[Path]) -> str:
    """Hashes files with their names, in the order in which they are given."""
    digest = hashlib.sha256()
    for source in files:
        digest.update(source.name.encode())
        with source.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
