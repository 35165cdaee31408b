"""Versions in a serving folder, each a folder whose name is a number; nothing here needs TFX."""

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

from components.disk import first_of_many, free_room, show_size, sizes_below
from components.example_gen.paths import is_remote
from components.processes.stopping import commit_or_abort, deferred
from components.pusher.certificate import (
    CERTIFICATE_PLACE,
    EXTRA_FOLDER,
    PROVENANCE_FILE,
    check_certified_files,
)
from components.pusher.variants import VARIANTS_FOLDER, add_variants, read_manifest
from trainer_module.errors import DamagedFileError, DataError
from trainer_module.export.variants.manifest import read_variant

INCOMING_PREFIX = ".incoming-"
"""Model servers look at folders that are numbers; what is being copied has no such name."""
ABANDONED_SECONDS = 3600.0
"""What another machine has not changed for so long, it does not write any more."""
OUTGOING_PREFIX = ".deleted-"
"""What is being deleted has no such name either."""
WITHDRAWN_PROPERTY = "withdrawn"
"""A custom property of a Model artifact: 1 if the model must not be used again."""
WAITS_PROPERTY = "waits"
"""A custom property of a ModelBlessing: 1 while its model is held back, or waits for approval."""
BLESSES_PROPERTY = "current_model_id"
"""TFX's custom property of a ModelBlessing: the id of its model."""
WITHDRAWN_FILE = f"{EXTRA_FOLDER}/withdrawn.json"
"""Marks a version as withdrawn, until that is lifted; a copy that is pushed has no such mark."""
SAVED_MODEL = "saved_model.pb"
"""What makes a folder a SavedModel."""


@dataclass(frozen=True)
class Provenance:
    """Where a version comes from."""

    model: str | None
    """The uri of the Model artifact."""
    model_id: int | None = None
    model_created: int | None = None
    """When the artifact was recorded, in milliseconds since 1970: after a new start with empty
    metadata, uris and ids come up again."""
    run: str | None = None
    pushed_at: str = ""
    """ISO 8601."""
    copy_of: int | None = None
    """The version that a rollback put in service again."""
    certified: bool = False
    """Whether a certificate was pushed with it."""

    def is_of(self, other: Provenance) -> bool:
        """Returns whether both are of the same model artifact."""
        return (self.model, self.model_id, self.model_created) == (
            other.model,
            other.model_id,
            other.model_created,
        )


def now() -> str:
    """Returns the time for a provenance."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def list_versions(base: Path) -> list[Path]:
    """Returns the versions in a serving folder, oldest first; a server loads the last."""
    if not base.is_dir():
        return []
    found = [path for path in base.iterdir() if _is_version(path)]
    return sorted(found, key=lambda path: int(path.name))


def _is_version(path: Path) -> bool:
    return path.name.isascii() and path.name.isdigit() and path.is_dir()


def read_provenance(version: Path) -> Provenance | None:
    """What a version's folder says of itself; None where it says nothing that can be read."""
    try:
        content: dict[str, Any] = json.loads((version / PROVENANCE_FILE).read_text())
        return Provenance(**content)
    except (OSError, ValueError, TypeError):
        return None


def find_damage(version: Path, certificate: Path | None = None) -> str:
    """What is wrong with a version's SavedModel, beginning with a file's path; empty if nothing is.

    All files are read. They have to be what the certificate says; without one nothing is known.

    Args:
      version: its folder, or a SavedModel that is not pushed yet.
      certificate: the folder of the certificate, if it is elsewhere than in the version.
    """
    if not (version / SAVED_MODEL).is_file():
        return f"{SAVED_MODEL} is not there"
    try:
        check_certified_files(version, certificate)
    except DamagedFileError as error:
        return _shown(error, version)
    return ""


def find_variant_damage(version: Path) -> str:
    """Returns the same of a version's variants, each of which has to be what was accepted."""
    try:
        for name in read_manifest(version):
            read_variant(version / VARIANTS_FOLDER / name)
    except DamagedFileError as error:
        return _shown(error, version)
    return ""


def _shown(error: DamagedFileError, version: Path) -> str:
    path = error.path
    inside = path.is_relative_to(version)
    return f"{path.relative_to(version) if inside else path} {error.what}"


def read_withdrawal(version: Path) -> str | None:
    """Why a version was withdrawn, empty if no reason is known; None if it was not withdrawn.

    Raises:
      OSError: that cannot be read, as of a disk that fails.
    """
    try:
        return str(json.loads((version / WITHDRAWN_FILE).read_text())["reason"] or "")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (ValueError, TypeError, KeyError):
        return ""  # Whatever is in the file, somebody withdrew the version.


def mark_withdrawn(version: Path, reason: str | None) -> None:
    """Leaves word in a version that it was withdrawn, which survives a power failure.

    Raises:
      OSError: nothing can be written there.
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
    """Takes that word back; raises OSError if it cannot be deleted."""
    file = version / WITHDRAWN_FILE
    if file.exists():
        file.unlink()
        _flush(file.parent)


def free_version(base: Path) -> Path:
    """Returns the folder of a new version, higher than all others, or it would not be served.

    It is named by the time in seconds, or later if the newest is from this second or the future.
    """
    newest = max((int(path.name) for path in list_versions(base)), default=0)
    return base / str(max(int(time.time()), newest + 1))


def push_new_version(
    model: Path,
    base: Path,
    provenance: Provenance | None = None,
    variants: Path | None = None,
    certificate: Path | None = None,
) -> Path:
    """Copies a SavedModel into a serving folder as its newest version, whole or not at all.

    The copy is in place once its files are those of the certificate.

    Args:
      model: the SavedModel's folder.
      base: the serving folder, which is made if need be; others may push to it at the same time.
      provenance: is in the version from the first moment; without, it keeps what `model` has.
      variants: the folder of the Optimizer's artifact, whose accepted variants are, too.
      certificate: a folder that goes along into `assets.extra`, if it is there.

    Returns:
      The version's folder.

    Raises:
      DataError: a file is not what was certified, or a variant not what was accepted.
    """
    with _incoming(model, base, provenance, variants, certificate) as incoming:
        while True:
            version = free_version(base)
            commit_or_abort()
            try:
                incoming.rename(version)
            except OSError as error:
                # Another pipeline has taken that number a moment ago.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            else:
                return version


def push_version(model: Path, version: Path) -> None:
    """Copies a SavedModel into a serving folder under a number, whole or not at all.

    Args:
      model: the SavedModel's folder, with its provenance.
      version: the folder it gets, below the serving folder, which is made if need be.

    Raises:
      DataError: a file is not what was certified, or a variant not what was accepted.
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
) -> Iterator[Path]:
    """Yields a copy of a model in the serving folder that no server looks at, and that is to be
    renamed.

    Its lock says that it is being written; what a killed process has left has none.
    """
    base.mkdir(parents=True, exist_ok=True)
    _delete_incoming(base)
    with ExitStack() as cleanup:
        with deferred():  # A stop comes before the folder is there, or after what deletes it is.
            incoming, lock = _make_locked(base)
            cleanup.callback(_discard, incoming, lock)
        try:
            shutil.copytree(model, incoming, dirs_exist_ok=True)
            if variants is not None:
                add_variants(variants, incoming)
            if certificate is not None and certificate.is_dir():
                extra = incoming / EXTRA_FOLDER / certificate.name
                shutil.copytree(certificate, extra, dirs_exist_ok=True)
        except OSError as error:
            raise _explained(error, model, incoming) from None
        (incoming / WITHDRAWN_FILE).unlink(missing_ok=True)  # The copy is in service again.
        if damage := find_damage(incoming) or find_variant_damage(incoming):
            raise DataError(f"{model}: it is not pushed, as of its copy {damage}.")
        if provenance is not None:
            file = incoming / PROVENANCE_FILE
            file.parent.mkdir(exist_ok=True)
            certified = (incoming / CERTIFICATE_PLACE).is_dir()
            file.write_text(json.dumps(asdict(replace(provenance, certified=certified))))
        for path in [*incoming.rglob("*"), incoming]:
            _flush(path)
        yield incoming
    _flush(base)


def _discard(incoming: Path, lock: int) -> None:
    """Deletes a copy, unless it has been renamed, and ends its lock."""
    with deferred():
        shutil.rmtree(incoming, ignore_errors=True)
        os.close(lock)


def _explained(error: OSError, model: Path, incoming: Path) -> OSError:
    """Returns an error of copying a model, with the file, and with the room that is needed and
    there is.
    """
    why = first_of_many(error)
    shutil.rmtree(incoming, ignore_errors=True)  # What was copied has taken room.
    if why.filename is None or why.errno is None:
        return why
    needed = show_size(sum(sizes_below(model)))
    room = f"the model needs {needed}, {free_room(incoming.parent)}"
    return OSError(why.errno, f"{why.strerror}; {room}", why.filename)


def _make_locked(base: Path) -> tuple[Path, int]:
    """Returns a new folder, and the descriptor that holds its lock."""
    own = f"{INCOMING_PREFIX}{socket.gethostname()}-"
    while True:
        folder = Path(tempfile.mkdtemp(prefix=own, dir=base))
        # Before it has its lock, another push may take it for abandoned.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # Not every file system has locks; its age has to do there.
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _delete_incoming(base: Path) -> None:
    """Deletes the copies that killed pushes have left, and none that is being written."""
    for found in base.glob(f"{INCOMING_PREFIX}*"):
        host, _, _ = found.name.removeprefix(INCOMING_PREFIX).rpartition("-")
        if host == socket.gethostname() and _delete_unlocked(found):
            continue
        # Locks of other machines may not be seen here.
        if _age(found) > ABANDONED_SECONDS:
            shutil.rmtree(found, ignore_errors=True)


def _delete_unlocked(folder: Path) -> bool:
    """Deletes a folder of this machine unless its lock is held; whether there are such locks."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return True  # It is gone.
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
    """Pushes a version again whose folder is gone or damaged; a remote folder is not looked at.

    Args:
      archive: Pusher's own copy of it.
      destination: the folder, or URI, that it was pushed to.

    Returns:
      What was wrong with it, in words; empty if nothing was.

    Raises:
      DataError: it is gone or damaged, and the copy is damaged as well.
    """
    if is_remote(destination):
        return ""
    version = Path(destination)
    if not version.exists():
        push_version(archive, version)
        return "was gone"
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
    """Seconds since its last change; none if it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def delete_whole(folder: Path) -> None:
    """Deletes a version, or another folder: who looks for it sees it whole, or not at all."""
    outgoing = folder.with_name(f"{OUTGOING_PREFIX}{folder.name}")
    folder.rename(outgoing)
    _flush(folder.parent)
    shutil.rmtree(outgoing)


def delete_abandoned(base: Path) -> None:
    """Deletes what a killed `delete_whole` has left."""
    for outgoing in base.glob(f"{OUTGOING_PREFIX}*"):
        shutil.rmtree(outgoing)


def _flush(path: Path) -> None:
    """Makes a file's content, or a folder's entries, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
