"""A certificate, and whether files are those that it is about; nothing here needs TensorFlow."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_module.errors import DamagedFileError
from trainer_module.export.variants.manifest import hash_file


@dataclass(frozen=True)
class CertificateLimits:
    """Of one certificate."""

    tolerance: float
    """The largest difference of two answers: of scores as such, of other numbers a share."""
    timeout: float
    """Seconds for all of it."""
    memory: float
    """GiB of the process."""


CERTIFICATE_FOLDER = "certificate"
"""In an InfraBlessing: what belongs into the version, below `assets.extra`."""
CERTIFICATE_FILE = "certificate.json"


@dataclass(frozen=True)
class GoldenRow:
    """A row that a model is asked for."""

    says: str
    """What is special about it, in words."""
    example: bytes
    """A serialised tf.Example with its label."""


EXTRA_FOLDER = "assets.extra"
"""In a version's folder; model servers and loaders leave it alone."""
CERTIFICATE_PLACE = f"{EXTRA_FOLDER}/{CERTIFICATE_FOLDER}"
"""In a version."""
PROVENANCE_FILE = f"{EXTRA_FOLDER}/pushed.json"
"""Where a version comes from, and whether it was pushed with a certificate."""
GOLDEN_FILE = "golden.parquet"
"""Beside the certificate: the golden rows and their answers."""
_REMEDY = "push it again, or go back by `rollback`."


@dataclass(frozen=True)
class Agreement:
    """How far the answers by one way are from those expected."""

    largest_difference: float
    """Of scores as such, of other numbers for each unit of them."""
    row: str
    """The golden row that it is of, in words."""
    output: str
    """What differs most."""


@dataclass(frozen=True)
class Certificate:
    """That a version answers alike by every way, or what is against it."""

    tolerance: float
    rows: int
    expected_by: str
    """The way that all others are compared with."""
    ways: dict[str, Agreement] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failure: str = ""
    """What differs, in a sentence; empty if nothing does."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each of the model's files, and of the golden rows, by the path in a version."""


def read_certificate(folder: Path) -> Certificate | None:
    """Returns the certificate in a folder; None where it has none.

    Raises:
      DamagedFileError: it cannot be read, or its golden rows are there alone.
    """
    path = folder / CERTIFICATE_FILE
    try:
        content = json.loads(path.read_text())
        ways = {name: _read_agreement(way) for name, way in content.pop("ways").items()}
        return Certificate(**content, ways=ways)
    except FileNotFoundError:
        if not (folder / GOLDEN_FILE).exists():
            return None
        raise DamagedFileError.of(path, "is gone", _REMEDY) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedFileError.of(path, f"is damaged ({type(error).__name__})", _REMEDY) from None


def _read_agreement(way: dict[str, Any]) -> Agreement:
    largest = way.pop("largest_difference")
    return Agreement(math.inf if largest is None else float(largest), **way)


def check_certified_files(version: Path, certificate: Path | None = None) -> None:
    """Checks the files of a version by its certificate; one without a certificate is taken as is.

    Args:
      version: its folder, or a SavedModel that is not pushed yet.
      certificate: the folder of the certificate, if it is elsewhere than in the version.

    Raises:
      DamagedFileError: a file is gone, or its content is not what was certified.
    """
    folder = certificate or version / CERTIFICATE_PLACE
    found = read_certificate(folder)
    if found is None:
        if certificate is None and _was_certified(version):
            raise DamagedFileError.of(folder, "is gone", _REMEDY)
        return
    if not (folder / GOLDEN_FILE).is_file():
        raise DamagedFileError.of(folder / GOLDEN_FILE, "is gone", _REMEDY)
    for name, digest in found.files.items():
        of_certificate = Path(name).is_relative_to(CERTIFICATE_PLACE)
        path = folder / Path(name).name if of_certificate else version / name
        try:
            is_same = hash_file(path) == digest
        except FileNotFoundError:
            raise DamagedFileError.of(path, "is gone", _REMEDY) from None
        except OSError as error:
            raise DamagedFileError.of(path, f"cannot be read ({error.strerror})", _REMEDY) from None
        if not is_same:
            what = "has changed since the version was certified"
            raise DamagedFileError.of(path, what, _REMEDY)


def _was_certified(version: Path) -> bool:
    try:
        return bool(json.loads((version / PROVENANCE_FILE).read_text())["certified"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}
