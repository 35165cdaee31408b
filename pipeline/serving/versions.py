"""Which version of a pushed model is asked."""

from __future__ import annotations

from pathlib import Path

from components.example_gen.paths import is_remote
from components.pusher.versions import list_versions
from trainer_module.errors import ConfigError

SAVED_MODEL = "saved_model.pb"
"""What makes a folder a SavedModel."""


def find_version(serving: str, number: int | None) -> Path:
    """A version in a serving folder, the newest where none is named.

    Raises:
      ConfigError: it is not there, or no version is, or the folder is remote.
    """
    if is_remote(serving):
        raise remote_error(serving)
    versions = {int(path.name): path for path in list_versions(Path(serving))}
    if not versions:
        raise ConfigError(f"no version has been pushed to {serving}: run the pipeline first.")
    if number is None:
        return versions[max(versions)]
    if number not in versions:
        known = ", ".join(map(str, sorted(versions)))
        raise ConfigError(f"--version {number}: {serving} has no such version; it has {known}.")
    return versions[number]


def remote_error(serving: str) -> ConfigError:
    """That a folder cannot be read here."""
    return ConfigError(f"{serving} is remote: copy a version here, and name it by --model DIR.")


def check_model(folder: Path) -> Path:
    """The folder, if it is a SavedModel; of a folder of versions, the newest.

    Raises:
      ConfigError: it is neither.
    """
    if (folder / SAVED_MODEL).is_file():
        return folder
    if versions := list_versions(folder):
        return versions[-1]
    found = "holds no saved_model.pb and no version" if folder.is_dir() else "is no folder"
    raise ConfigError(f"--model {folder} {found}: give the folder of a pushed version.")
