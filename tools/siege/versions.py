"""Attacks with damaged versions: a function per kind, which also checks the answering version."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from components.pusher.certificate import CERTIFICATE_PATH, read_certificate
from components.pusher.versions import (
    Provenance,
    delete_atomically,
    free_version,
    list_versions,
    now,
    push_new_version,
    push_version,
    read_provenance,
)
from tools.siege.models import Models
from tools.siege.siege import Siege

_COMMAND_SECONDS = 120


class Store:
    """The folder of versions, and the expected state of each version."""

    def __init__(self, models: Models) -> None:
        """Registers the versions that the pipeline has pushed."""
        self.models, self.folder = models, models.serving
        numbers = [int(path.name) for path in list_versions(self.folder)]
        self.marks: dict[int, str | None] = dict(zip(numbers, models.folders, strict=True))
        """The mark of the model by version, or None for a version that must not answer."""
        self.withdrawn: set[int] = set()
        self._changed: set[int] = set()
        """The versions that were good and are now damaged.

        A server that has loaded such a version may keep it, but no server may load it."""

    @property
    def expected(self) -> int:
        """The version that must answer: the newest version that is good and not withdrawn."""
        numbers = (int(path.name) for path in list_versions(self.folder))
        return max(number for number in numbers if self.is_good(number))

    def is_good(self, number: int) -> bool:
        """Returns whether a version may answer."""
        bad = self.withdrawn | self._changed
        return self.marks.get(number) is not None and number not in bad

    @property
    def other(self) -> str:
        """The mark of a model that is not in service, or of the only model."""
        now = str(self.marks[self.expected])
        return next((mark for mark in self.models.folders if mark != now), now)

    def path(self, number: int) -> Path:
        """Returns the folder of a version."""
        return self.folder / str(number)

    def push(self) -> int:
        """Pushes the model that is not in service, as the Pusher does; returns its version."""
        mark = self.other
        version = push_new_version(self.models.folders[mark], self.folder, self._provenance())
        self.marks[int(version.name)] = mark
        return int(version.name)

    def _provenance(self) -> Provenance:
        """Returns the provenance of a new model artifact."""
        number = int(free_version(self.folder).name)
        return Provenance(f"siege/{number}", number, number, pushed_at=now())

    def put(self, change: Callable[[Path], object]) -> int:
        """Adds a version that must not answer: a changed copy of a model; returns its number."""
        with tempfile.TemporaryDirectory(dir=self.models.output) as scratch:
            base = Path(scratch)
            copy = push_new_version(self.models.folders[self.other], base, self._provenance())
            change(copy)
            version = free_version(self.folder)
            copy.rename(version)
        self.marks[int(version.name)] = None
        return int(version.name)

    def restore(self, number: int) -> None:
        """Restores a changed version from its model, file by file, with the graph last."""
        mark, folder = self.other, self.path(number)
        files = [path for path in self.models.folders[mark].rglob("*") if path.is_file()]
        for file in sorted(files, key=lambda path: path.name == "saved_model.pb"):
            target = folder / file.relative_to(self.models.folders[mark])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        self.marks[number] = mark

    def damage(self, number: int, chance: random.Random) -> None:
        """Changes a byte of a version in place."""
        flip(self.path(number), chance)
        self._changed.add(number)

    def roll_back(self, *options: str) -> tuple[int, int | None]:
        """Runs `rollback`; returns its exit code, and the number of the new copy or None."""
        code, _ = self.command("rollback", *options)
        newest = list_versions(self.folder)[-1]
        if int(newest.name) in self.marks:
            return code, None
        copied = read_provenance(newest)
        origin = (copied and copied.copy_of) or 0
        mark = None if origin in self._changed else self.marks.get(origin)
        self.marks[int(newest.name)] = mark
        return code, int(newest.name)

    def command(self, name: str, *options: str) -> tuple[int, str]:
        """Runs a command that may withdraw versions; returns its exit code and output."""
        command = self.models.command(name, "--reason", "siege", *options)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS
        )
        output = done.stdout + done.stderr
        self.withdrawn |= {int(n) for n in re.findall(r"version (\d+) was withdrawn", output)}
        return done.returncode, output


def flip(version: Path, chance: random.Random) -> None:
    """Changes a byte of a file of a model."""
    file = chance.choice(_files(version))
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
    file.write_bytes(content)


def _files(version: Path) -> list[Path]:
    """Returns the files of a version that its certificate covers."""
    certificate = read_certificate(version / CERTIFICATE_PATH)
    assert certificate  # noqa: S101 - the siege pushes certified models
    return [version / name for name in sorted(certificate.files)]


Damage = Callable[[Siege, random.Random], None]
KINDS: dict[str, Damage] = {}


def damage(kind: Damage) -> Damage:
    """Registers a kind of damage."""
    KINDS[kind.__name__] = kind
    return kind


# Versions that must not answer: the previous version remains in service.


def _expect_unchanged(siege: Siege, change: Callable[[Path], object]) -> int:
    number = siege.store.put(change)
    siege.expect_no_switch()
    return number


@damage
def flipped_byte(siege: Siege, chance: random.Random) -> None:
    """Adds a version with a changed byte."""
    _expect_unchanged(siege, lambda version: flip(version, chance))


@damage
def cut_file(siege: Siege, chance: random.Random) -> None:
    """Adds a version with a truncated file."""

    def cut(version: Path) -> None:
        file = chance.choice(_files(version))
        file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])

    _expect_unchanged(siege, cut)


@damage
def missing_file(siege: Siege, chance: random.Random) -> None:
    """Adds a version without a file or folder."""

    def remove(version: Path) -> None:
        found = chance.choice([*_files(version), version / "variables"])
        shutil.rmtree(found) if found.is_dir() else found.unlink()

    _expect_unchanged(siege, remove)


@damage
def damaged_certificate(siege: Siege, chance: random.Random) -> None:
    """Adds a version whose certificate or golden rows are empty or damaged."""
    name = chance.choice(["certificate.json", "golden.parquet"])
    content = chance.choice([b"", b"{}", chance.randbytes(100)])
    _expect_unchanged(
        siege, lambda version: (version / CERTIFICATE_PATH / name).write_bytes(content)
    )


@damage
def file_for_a_folder(siege: Siege, chance: random.Random) -> None:
    """Adds a file, or a broken link, with the name of a version."""
    path = free_version(siege.store.folder)
    if chance.random() < 0.5:
        path.write_bytes(b"")
    else:
        path.symlink_to("nowhere")
    siege.expect_no_switch()
    path.unlink()


# Versions that must not answer yet.


def _expect_after_restore(siege: Siege, number: int) -> None:
    siege.expect_no_switch()
    siege.store.restore(number)
    siege.expect_switch()


@damage
def empty_folder(siege: Siege, chance: random.Random) -> None:
    """Adds an empty folder, and fills it later."""

    def clear(version: Path) -> None:
        shutil.rmtree(version)
        version.mkdir()

    _expect_after_restore(siege, siege.store.put(clear))


@damage
def half_copied(siege: Siege, chance: random.Random) -> None:
    """Adds a folder without saved_model.pb, and adds this file later."""
    number = siege.store.put(lambda version: (version / "saved_model.pb").unlink())
    _expect_after_restore(siege, number)


@damage
def half_written(siege: Siege, chance: random.Random) -> None:
    """Adds a folder with a truncated file of variables, and completes the file later."""

    def cut(version: Path) -> None:
        (data,) = (version / "variables").glob("*.data*")
        data.write_bytes(data.read_bytes()[: chance.randrange(data.stat().st_size)])

    _expect_after_restore(siege, siege.store.put(cut))


@damage
def unreadable(siege: Siege, chance: random.Random) -> None:
    """Adds a version with an unreadable file or folder, which becomes readable later."""
    found: list[Path] = []

    def forbid(version: Path) -> None:
        found.append(chance.choice([*_files(version), version / "variables", version]))
        found[0] = found[0].relative_to(version)
        (version / found[0]).chmod(0)

    number = siege.store.put(forbid)
    siege.expect_no_switch()
    (siege.store.path(number) / found[0]).chmod(0o755)
    siege.store.restore(number)
    siege.expect_switch()


@damage
def pushed_anew(siege: Siege, chance: random.Random) -> None:
    """Deletes a damaged version, and pushes a good version under the same number."""
    store = siege.store
    number = _expect_unchanged(siege, lambda version: flip(version, chance))
    delete_atomically(store.path(number))
    mark = store.other
    push_version(store.models.folders[mark], store.path(number))
    store.marks[number] = mark
    siege.expect_switch()


# Versions that are deleted or withdrawn.


@damage
def deleted(siege: Siege, chance: random.Random) -> None:
    """Deletes the version in service; the previous version must answer."""
    siege.store.push()
    siege.expect_switch()
    delete_atomically(siege.store.path(siege.store.expected))
    siege.expect_switch()


@damage
def rolled_back(siege: Siege, chance: random.Random) -> None:
    """Rolls back; a copy of the previous version must answer."""
    siege.store.push()
    siege.expect_switch()
    _roll_back(siege)


def _roll_back(siege: Siege, *options: str) -> None:
    """Runs `rollback`, and expects a good version in service."""
    code, copy = siege.store.roll_back(*options)
    if code or copy is None:
        siege.fault(f"rollback ended with exit code {code}, and put version {copy} in service")
    elif not siege.store.is_good(copy):
        siege.fault(f"rollback put version {copy} in service, which is a copy of a damaged version")
    siege.expect_switch()


@damage
def rolled_back_past_a_damaged_version(siege: Siege, chance: random.Random) -> None:
    """Rolls back past a damaged version, which the rollback must skip."""
    before = siege.store.expected
    siege.store.push()
    siege.expect_switch()
    siege.store.damage(before, chance)
    _roll_back(siege)


@damage
def rolled_back_to_a_damaged_version(siege: Siege, chance: random.Random) -> None:
    """Rolls back to a damaged version by its number; the command must refuse."""
    before = siege.store.expected
    siege.store.push()
    siege.expect_switch()
    siege.store.damage(before, chance)
    code, copy = siege.store.roll_back("--to", str(before))
    if code == 0 or copy is not None:
        siege.fault(
            f"rollback to a damaged version ended with exit code {code}, and copied it as {copy}"
        )
    siege.expect_no_switch()


@damage
def rolled_back_from_a_damaged_version(siege: Siege, chance: random.Random) -> None:
    """Rolls back when the newest version has never answered."""
    siege.store.push()
    siege.expect_switch()
    _expect_unchanged(siege, lambda version: flip(version, chance))
    _roll_back(siege)


@damage
def withdrawn(siege: Siege, chance: random.Random) -> None:
    """Withdraws the previous version and deletes the version in service.

    An earlier version must answer.
    """
    before = siege.store.push()
    siege.expect_switch()
    siege.store.push()
    siege.expect_switch()
    code, output = siege.store.command("models", "--withdraw", str(before))
    if code:
        siege.fault(f"models --withdraw ended with exit code {code}: {output}")
    delete_atomically(siege.store.path(siege.store.expected))
    siege.expect_switch()


@damage
def restarted_after_a_rollback(siege: Siege, chance: random.Random) -> None:
    """Damages the copy of a rollback and restarts the server; no withdrawn version may answer."""
    siege.store.push()
    siege.expect_switch()
    _roll_back(siege)
    siege.store.damage(siege.store.expected, chance)
    siege.server.restart()
    siege.expect_switch()
