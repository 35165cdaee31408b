"""The versions in a serving folder: folders with numbers as names. The module imports no TFX."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from components.disk import first_error_of, free_space, show_size, sizes_below
from components.example_gen.paths import is_remote
from components.processes.stopping import commit_or_abort, defer_stop
from components.pusher.certificate import (
    CERTIFICATE_PATH,
    EXTRA_FOLDER,
    PROVENANCE_FILE,
    check_certified_files,
)
from components.pusher.variants import VARIANTS_FOLDER, add_variants, read_manifest
from trainer_module.errors import DamagedFileError, DataError
from trainer_module.export.variants.manifest import read_variant

INCOMING_PREFIX = ".incoming-"
"""The prefix of folders that are being copied. Model servers only read folders whose names are
numbers."""
ABANDONED_SECONDS = 3600.0
"""The seconds without a change after which an unfinished copy of another machine is deleted."""
OUTGOING_PREFIX = ".deleted-"
WITHDRAWN_PROPERTY = "withdrawn"
"""A custom property of a Model artifact: 1 if the model must not be used again."""
WAITING_PROPERTY = "waits"
"""A custom property of a ModelBlessing: 1 while pushes are on hold, or the model waits for
approval."""
BLESSED_MODEL_PROPERTY = "current_model_id"
"""TFX's custom property of a ModelBlessing: the id of its model."""
WITHDRAWN_FILE = f"{EXTRA_FOLDER}/withdrawn.json"
"""The path, in a version, of the file that marks the version as withdrawn."""
CARD_FOLDER = "model_card"
"""The folder, in a Model artifact, with the cards of the model: a folder per run that evaluated it,
whose files this run's push copies into the version."""
CARD_JSON, CARD_MARKDOWN = "model_card.json", "model_card.md"
"""The files of the model card, in this folder and in a version. Model servers ignore them."""
SAVED_MODEL = "saved_model.pb"
"""The file of the graph, which every SavedModel has."""


@dataclass(frozen=True)
class Provenance:
    """The origin of a version."""

    model: str | None
    model_id: int | None = None
    model_created: int | None = None
    """The creation time of the artifact in milliseconds since 1970. It is needed because URIs and
    ids repeat after a restart with an empty metadata store."""
    run: str | None = None
    pushed_at: str = ""
    """The time of the push in ISO 8601."""
    copy_of: int | None = None
    """The number of the version of which this version is a copy, made by a rollback."""
    certified: bool = False
    """Whether the version was pushed with a certificate."""

    def has_same_model(self, other: Provenance) -> bool:
        """Returns whether both versions come from the same Model artifact."""
        return (self.model, self.model_id, self.model_created) == (
            other.model,
            other.model_id,
            other.model_created,
        )


def now() -> str:
    """Returns the current time in the format of a provenance."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def list_versions(base: Path) -> list[Path]:
    """Returns the versions in a serving folder, oldest first."""
    if not base.is_dir():
        return []
    versions = [path for path in base.iterdir() if _is_version(path)]
    return sorted(versions, key=lambda path: int(path.name))


def _is_version(path: Path) -> bool:
    return path.name.isascii() and path.name.isdigit() and path.is_dir()


def read_provenance(version: Path) -> Provenance | None:
    """Returns the provenance of a version, or None if it is missing or unreadable."""
    try:
        content: dict[str, Any] = json.loads((version / PROVENANCE_FILE).read_text())
        return Provenance(**content)
    except (OSError, ValueError, TypeError):
        return None


def find_damage(version: Path, certificate: Path | None = None) -> str:
    """Returns a description of the damage of a version's SavedModel, or an empty string.

    The description begins with the path of a file. All files are compared with the certificate. If
    there is no certificate, only the presence of the graph is checked.

    Args:
      version: the folder of a version, or of a SavedModel that is not pushed yet.
      certificate: the folder of the certificate, or None if it is in the version.
    """
    if not (version / SAVED_MODEL).is_file():
        return f"{SAVED_MODEL} is missing"
    try:
        check_certified_files(version, certificate)
    except DamagedFileError as error:
        return _describe_damage(error, version)
    return ""


def find_variant_damage(version: Path) -> str:
    """Returns a description of the damage of a version's variants, or an empty string."""
    try:
        for name in read_manifest(version):
            read_variant(version / VARIANTS_FOLDER / name)
    except DamagedFileError as error:
        return _describe_damage(error, version)
    return ""


def _describe_damage(error: DamagedFileError, version: Path) -> str:
    path = error.path
    is_inside = path.is_relative_to(version)
    return f"{path.relative_to(version) if is_inside else path} {error.damage}"


def read_withdrawal(version: Path) -> str | None:
    """Returns the reason why a version was withdrawn.

    Returns:
      The reason, or an empty string if the marker is damaged or may not be read. None if there
      is no marker.

    Raises:
      OSError: the marker cannot be read, for example from a failing disk.
    """
    marker = version / WITHDRAWN_FILE
    try:
        return str(json.loads(marker.read_text())["reason"] or "")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        # If the whole version may not be read, its first reader raises the error.
        return "" if os.path.lexists(marker) else None
    except (ValueError, TypeError, KeyError):
        return ""  # A damaged marker still means that the version was withdrawn.


def mark_withdrawn(version: Path, reason: str | None) -> None:
    """Marks a version as withdrawn, and flushes the marker to disk.

    Raises:
      OSError: the marker cannot be written.
    """
    file = version / WITHDRAWN_FILE
    if file.exists():
        return
    file.parent.mkdir(exist_ok=True)
    scratch = file.with_name(f".{file.name}.tmp")
    scratch.write_text(json.dumps({"reason": reason, "at": now()}))
    _flush(scratch)
    scratch.replace(file)
    _flush(file.parent)


def lift_withdrawal(version: Path) -> None:
    """Deletes the marker of a withdrawn version.

    Raises:
      OSError: the marker cannot be deleted.
    """
    file = version / WITHDRAWN_FILE
    if file.exists():
        file.unlink()
        _flush(file.parent)


def free_version(base: Path) -> Path:
    """Returns the folder of a new version, with a higher number than all versions.

    The number is the current time in seconds, or the highest number plus 1 if that is larger.
    """
    newest = max((int(path.name) for path in list_versions(base)), default=0)
    return base / str(max(int(time.time()), newest + 1))


def push_new_version(
    model: Path,
    base: Path,
    provenance: Provenance | None = None,
    variants: Path | None = None,
    certificate: Path | None = None,
    card: Path | None = None,
) -> Path:
    """Copies a SavedModel atomically into a serving folder, as its newest version.

    The copy is compared with the certificate before it becomes visible.

    Args:
      base: the serving folder, which is created if missing. Several pipelines may push to it at the
        same time.
      provenance: the origin of the version; by default the provenance in `model`.
      variants: the folder of the Optimizer's artifact, whose accepted variants are copied too.
      certificate: the folder of the certificate, which is copied into the version if it exists.
      card: the folder of the model card, whose files are copied into the version if they exist.

    Returns:
      The folder of the version.

    Raises:
      DataError: a file differs from the certified file, or a variant from the accepted variant.
    """
    with _incoming(model, base, provenance, variants, certificate, card) as incoming:
        while True:
            version = free_version(base)
            commit_or_abort()
            try:
                incoming.rename(version)
            except OSError as error:
                # Another pipeline has just used this number.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            else:
                return version


def push_version(model: Path, version: Path) -> None:
    """Copies a SavedModel atomically into a serving folder, as a version with a given number.

    Args:
      model: the folder of the SavedModel, with its provenance.
      version: the folder of the version in the serving folder, which is created if missing.

    Raises:
      DataError: a file differs from the certified file, or a variant from the accepted variant.
    """
    with _incoming(model, version.parent) as incoming:
        commit_or_abort()
        incoming.rename(version)


@contextmanager
def _incoming(
    model: Path,
    base: Path,
    provenance: Provenance | None = None,
    variants: Path | None = None,
    certificate: Path | None = None,
    card: Path | None = None,
) -> Iterator[Path]:
    """Yields a checked copy of a model in the serving folder, for the caller to rename.

    Servers ignore the copy. It is locked while its process lives: a copy without a lock was
    abandoned by a killed process.
    """
    base.mkdir(parents=True, exist_ok=True)
    _delete_incoming(base)
    with ExitStack() as cleanup:
        with defer_stop():  # A stop signal cannot separate the folder from its cleanup.
            incoming, lock = _make_locked_folder(base)
            cleanup.callback(_discard, incoming, lock)
        try:
            shutil.copytree(model, incoming, dirs_exist_ok=True)
            if variants is not None:
                add_variants(variants, incoming)
            if certificate is not None and certificate.is_dir():
                extra = incoming / EXTRA_FOLDER / certificate.name
                shutil.copytree(certificate, extra, dirs_exist_ok=True)
            if card is not None and card.is_dir():
                shutil.copytree(card, incoming, dirs_exist_ok=True)
        except OSError as error:
            raise _add_disk_space(error, model, incoming) from None
        (incoming / WITHDRAWN_FILE).unlink(missing_ok=True)  # The copy is not withdrawn.
        if damage := find_damage(incoming) or find_variant_damage(incoming):
            raise DataError(f"{model} is not pushed, because its copy is damaged: {damage}.")
        if provenance is not None:
            file = incoming / PROVENANCE_FILE
            file.parent.mkdir(exist_ok=True)
            certified = (incoming / CERTIFICATE_PATH).is_dir()
            file.write_text(json.dumps(asdict(replace(provenance, certified=certified))))
        for path in [*incoming.rglob("*"), incoming]:
            _flush(path)
        yield incoming
    _flush(base)


def _discard(incoming: Path, lock: int) -> None:
    """Deletes a copy unless it has been renamed, and releases its lock."""
    with defer_stop():
        shutil.rmtree(incoming, ignore_errors=True)
        os.close(lock)


def _add_disk_space(error: OSError, model: Path, incoming: Path) -> OSError:
    """Returns the error of a failed copy, with the file, the needed and the available disk
    space.
    """
    cause = first_error_of(error)
    # The partial copy is deleted before the free space is measured.
    shutil.rmtree(incoming, ignore_errors=True)
    if cause.filename is None or cause.errno is None:
        return cause
    needed = show_size(sum(sizes_below(model)))
    space = f"the model needs {needed}, {free_space(incoming.parent)}"
    return OSError(cause.errno, f"{cause.strerror}; {space}", cause.filename)


def _make_locked_folder(base: Path) -> tuple[Path, int]:
    """Returns a new folder, and the descriptor that holds its lock."""
    prefix = f"{INCOMING_PREFIX}{socket.gethostname()}-"
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        # Until the folder is locked, another push may delete it as abandoned.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with suppress(
                OSError
            ):  # If the file system supports no locks, the age of the folder decides.
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _delete_incoming(base: Path) -> None:
    """Deletes the copies of killed pushes, but no copies in progress."""
    for folder in base.glob(f"{INCOMING_PREFIX}*"):
        host, _, _ = folder.name.removeprefix(INCOMING_PREFIX).rpartition("-")
        if host == socket.gethostname() and _delete_unlocked(folder):
            continue
        # The locks of other machines may not be visible on this machine.
        if _age(folder) > ABANDONED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _delete_unlocked(folder: Path) -> bool:
    """Deletes a folder unless it is locked, and returns whether locks are supported.

    The folder was created by this machine.
    """
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return True  # Another process has deleted the folder.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)


def restore_version(archive: Path, destination: str) -> str:
    """Pushes a version again if its folder is missing or damaged.

    Remote folders are not checked.

    Args:
      archive: the copy of the version in the Pusher's artifact.
      destination: the folder or URI that the version was pushed to.

    Returns:
      A description of the damage, or an empty string if there was no damage.

    Raises:
      DataError: the version is missing or damaged, and the copy is damaged as well.
    """
    if is_remote(destination):
        return ""
    version = Path(destination)
    if not version.exists():
        push_version(archive, version)
        return "was missing"
    damage = find_damage(version) or find_variant_damage(version)
    if not damage or read_withdrawal(version) is not None:
        return ""
    delete_abandoned(version.parent)
    outgoing = version.with_name(f"{OUTGOING_PREFIX}{version.name}")
    with _incoming(archive, version.parent) as incoming:
        commit_or_abort()
        version.rename(outgoing)
        incoming.rename(version)
    shutil.rmtree(outgoing)
    return f"was damaged ({damage})"


def _age(path: Path) -> float:
    """Returns the seconds since the last change of a path, or 0 if the path does not exist."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def delete_atomically(folder: Path) -> None:
    """Renames and then deletes a folder: other processes never see an incomplete folder."""
    outgoing = folder.with_name(f"{OUTGOING_PREFIX}{folder.name}")
    folder.rename(outgoing)
    _flush(folder.parent)
    shutil.rmtree(outgoing)


def delete_abandoned(base: Path) -> None:
    """Deletes the remaining folders of killed `delete_atomically` calls."""
    for outgoing in base.glob(f"{OUTGOING_PREFIX}*"):
        shutil.rmtree(outgoing)


def _flush(path: Path) -> None:
    """Flushes the content of a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
