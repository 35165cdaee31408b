"""Selection of the version of a pushed model that is loaded."""

from __future__ import annotations

from pathlib import Path

from components.example_gen.paths import is_remote
from components.pusher.certificate import check_certified_files
from components.pusher.versions import SAVED_MODEL, list_versions, read_withdrawal
from trainer_module.errors import ConfigError


def find_version(serving: str, number: int | None) -> Path:
    """Returns the folder of a version in a folder of versions.

    Args:
      number: the number of the version, or None for the newest version that was not withdrawn.

    Raises:
      ConfigError: the version does not exist, there is no version, all versions were withdrawn, or
        the folder is remote.
      DamagedFileError: the files of the version differ from its certificate.
    """
    if is_remote(serving):
        raise remote_error(serving)
    versions = {int(path.name): path for path in list_versions(Path(serving))}
    if not versions:
        raise ConfigError(f"no version has been pushed to {serving}: run the pipeline first.")
    if number is None:
        return _checked(newest_version(Path(serving)), Path(serving))
    if number not in versions:
        numbers = ", ".join(map(str, sorted(versions)))
        raise ConfigError(f"--version {number}: {serving} has only the versions {numbers}.")
    return _checked(versions[number], Path(serving))


def newest_version(folder: Path) -> Path | None:
    """Returns the newest version that was not withdrawn, or None if there is no such version."""
    usable = (v for v in reversed(list_versions(folder)) if read_withdrawal(v) is None)
    return next(usable, None)


def _checked(version: Path | None, folder: Path) -> Path:
    """Returns the version after checking its files.

    Raises:
      ConfigError: the version is None, because all versions in the folder were withdrawn.
      DamagedFileError: the files of the version differ from its certificate.
    """
    if version is None:
        raise ConfigError(
            f"{folder}: all versions were withdrawn; to use a withdrawn version, give its folder."
        )
    check_certified_files(version)
    return version


def remote_error(serving: str) -> ConfigError:
    """Returns the error for a remote folder, which cannot be read directly."""
    return ConfigError(
        f"{serving} is remote: copy a version to this machine, and give its folder as --model DIR."
    )


def check_model(folder: Path) -> Path:
    """Returns the folder of the model to load, after checking its files.

    Args:
      folder: the folder of a version, or a folder of versions, from which the newest version that
        was not withdrawn is loaded.

    Raises:
      ConfigError: the folder contains neither a SavedModel nor versions, or all versions were
        withdrawn.
      DamagedFileError: the files of the version differ from its certificate.
    """
    versions = versions_folder(folder)
    if (folder / SAVED_MODEL).is_file():
        return _checked(folder, versions)
    return _checked(newest_version(versions), versions)


def version_number(folder: Path) -> int | None:
    """Returns the number of a version, or None for a folder of versions.

    Raises:
      ConfigError: the folder contains a SavedModel, but its name is not a number.
    """
    if not (folder / SAVED_MODEL).is_file():
        return None
    name = folder.resolve().name
    if not (name.isascii() and name.isdigit()):
        raise ConfigError(
            f"--model {folder}: the name of a served version is its number; rename the folder, for"
            " example to 1."
        )
    return int(name)


def versions_folder(folder: Path) -> Path:
    """Returns the folder of the versions.

    Args:
      folder: the folder of a version, or the folder of the versions itself.

    Raises:
      ConfigError: the folder contains neither a SavedModel nor versions.
    """
    if (folder / SAVED_MODEL).is_file():
        return folder.resolve().parent
    if list_versions(folder):
        return folder.resolve()
    problem = (
        "contains neither saved_model.pb nor a version" if folder.is_dir() else "is not a folder"
    )
    raise ConfigError(f"--model {folder} {problem}: give the folder of a pushed version.")
