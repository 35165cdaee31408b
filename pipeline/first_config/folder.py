"""Writes a config, with paths that are valid there, and the files beside it into a folder.

Files of the user are not replaced.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.disk import disk_full, is_disk_full, write_atomically
from components.example_gen.formats import FORMATS
from components.example_gen.paths import is_remote
from pipeline.config.sections.data import BUILTIN_PREFIX
from pipeline.first_config.proposal import Proposal
from trainer_module.errors import ConfigError

CONFIG = "config.yaml"
"""The name of the file of the config."""
_PATHS = ("data.path", "data.labels.path", "schema", "push.directory", "skew.requests")
_FEATURE_PATHS = ("folder", "vocabulary")
"""The keys of configs and of features with paths that are relative to the working directory."""


def check_folder(folder: Path, force: bool) -> None:
    """Checks that the config can be written, before the data is read.

    Args:
      folder: the folder, which need not exist.
      force: whether an existing config may be replaced.

    Raises:
      ConfigError: the folder cannot be written, or has a config.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ConfigError(f"{existing} is a file, not a folder: name a folder by --folder.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{existing} cannot be written: name another folder by --folder.")
    check_absent(folder / CONFIG, force)


def check_absent(file: Path, force: bool) -> None:
    """Raises ConfigError if a file exists and may not be replaced."""
    if file.exists() and not force:
        raise ConfigError(
            f"{file} exists: add --force to replace it, or name another folder by --folder."
        )


def write_files(
    folder: Path, replaced: Mapping[str, str], kept: Mapping[str, str]
) -> tuple[list[Path], list[Path]]:
    """Writes files, each of them completely or not at all.

    Args:
      folder: the folder, which is made if it does not exist.
      replaced: the texts of files that may exist, by name; the last one is written last.
      kept: the texts of files that are left unchanged if they exist.

    Returns:
      The files that were written, and those that were left unchanged.

    Raises:
      ConfigError: a file cannot be written.
      DiskFullError: the disk is full.
    """
    unchanged = [folder / name for name in kept if (folder / name).exists()]
    new = {name: text for name, text in kept.items() if folder / name not in unchanged}
    written = []
    for name, text in {**new, **replaced}.items():
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
        except OSError as error:
            if is_disk_full(error):
                raise disk_full(path) from error
            raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
        written.append(path)
    return written, unchanged


def place(proposal: Proposal, folder: Path) -> Proposal:
    """Returns a proposal whose paths, relative to the working directory, are valid in a folder."""
    if folder.resolve() == Path.cwd().resolve():
        return proposal
    config = copy.deepcopy(dict(proposal.config))
    in_folder = bool(proposal.table) or not FORMATS[config["data"]["format"]].has_files
    for key in _PATHS[1:] if in_folder else _PATHS:
        _move(config, key.split("."), folder)
    for feature in config.get("features", {}).values():
        for key in _FEATURE_PATHS:
            _move(feature, [key], folder)
    weights = config["model"].get("weights") if isinstance(config.get("model"), dict) else None
    if weights is not None and Path(weights).exists():  # Other weights are names.
        _move(config, ["model", "weights"], folder)
    return replace(proposal, config=config)


def _move(section: Any, keys: list[str], folder: Path) -> None:
    """Replaces a local path by the path relative to a folder that contains it, or absolute."""
    *sections, last = keys
    for key in sections:
        section = section.get(key) if isinstance(section, dict) else None
    path = section.get(last) if isinstance(section, dict) else None
    if isinstance(path, str) and not is_remote(path) and not path.startswith(BUILTIN_PREFIX):
        absolute, base = Path(path).absolute(), folder.resolve()
        is_inside = absolute.is_relative_to(base)
        section[last] = str(absolute.relative_to(base) if is_inside else absolute)
