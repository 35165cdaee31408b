"""Writes a config and the files beside it into a folder, without replacing a user's files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from components.disk import disk_full, is_disk_full, write_atomically
from trainer_module.errors import ConfigError

CONFIG = "config.yaml"
"""The name of the file of the config."""


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
