"""The certificate of a version, and the check of its files. The module imports no TensorFlow."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_module.errors import DamagedFileError
from trainer_module.export.variants.manifest import hash_file
from trainer_module.typed_words import typed_command


@dataclass(frozen=True)
class CertificateLimits:
    """The tolerance and the resource limits of a certification."""

    tolerance: float
    """The largest allowed difference of two predictions: absolute for scores, relative for other
    numbers."""
    timeout: float
    """The timeout of the whole certification, in seconds."""
    memory: float
    """The memory limit of the process, in GiB."""


CERTIFICATE_FOLDER = "certificate"
"""The folder of an InfraBlessing that is copied to `assets.extra` of the version."""
CERTIFICATE_FILE = "certificate.json"


OF_EVAL = " of eval"
"""The end of the description of a row of the eval split."""


@dataclass(frozen=True)
class GoldenRow:
    """A row for which all interfaces have to return equal predictions."""

    description: str
    """A description of the row, for messages: its number, or the value that makes it an edge
    case."""
    example: bytes
    """A serialised tf.Example, with the label."""

    @property
    def is_of_eval(self) -> bool:
        """Whether the row is an unchanged row of the eval split."""
        return self.description.endswith(OF_EVAL)


EXTRA_FOLDER = "assets.extra"
"""The folder of a version for additional files, which model servers and loaders ignore."""
CERTIFICATE_PATH = f"{EXTRA_FOLDER}/{CERTIFICATE_FOLDER}"
PROVENANCE_FILE = f"{EXTRA_FOLDER}/pushed.json"
"""The path, in a version, of the file with the version's `Provenance`."""
GOLDEN_FILE = "golden.parquet"
"""The file, next to the certificate, with the golden rows and their predictions."""


def _remedy() -> str:
    return f"push the version again, or run `{typed_command('rollback')}`."


@dataclass(frozen=True)
class Agreement:
    """The largest difference between the predictions of an interface and the expected
    predictions.
    """

    largest_difference: float
    """The largest difference: absolute for scores, relative for other numbers."""
    row: str
    """The description of the golden row with the largest difference."""
    output: str


@dataclass(frozen=True)
class Certificate:
    """The result of a certification, which compares the predictions of all interfaces of a
    version.
    """

    tolerance: float
    rows: int
    expected_by: str
    """The interface that gives the expected predictions."""
    ways: dict[str, Agreement] = field(default_factory=dict)
    """The `Agreement` of each interface, by the interface's name."""
    notes: list[str] = field(default_factory=list)
    failure: str = ""
    """A description of the first failure, or an empty string if all predictions agree."""
    files: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of each file of the model, and of the golden rows, by the path in a version."""


def read_certificate(folder: Path) -> Certificate | None:
    """Returns the certificate in a folder, or None if there is no certificate.

    Raises:
      DamagedFileError: the certificate is unreadable, or there are golden rows without certificate.
    """
    path = folder / CERTIFICATE_FILE
    try:
        content = json.loads(path.read_text())
        ways = {name: _read_agreement(way) for name, way in content.pop("ways").items()}
        return Certificate(**content, ways=ways)
    except FileNotFoundError:
        if not (folder / GOLDEN_FILE).exists():
            return None
        raise DamagedFileError.of(path, "is missing", _remedy()) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedFileError.of(path, f"is damaged ({type(error).__name__})", _remedy()) from None


def _read_agreement(way: dict[str, Any]) -> Agreement:
    largest = way.pop("largest_difference")
    return Agreement(math.inf if largest is None else float(largest), **way)


def check_certified_files(version: Path, certificate: Path | None = None) -> None:
    """Checks the files of a version against its certificate.

    A version that was pushed without a certificate passes the check.

    Args:
      version: the folder of a version, or of a SavedModel that is not pushed yet.
      certificate: the folder of the certificate, or None if it is in the version.

    Raises:
      DamagedFileError: a file is missing, or differs from the certified file.
    """
    folder = certificate or version / CERTIFICATE_PATH
    content = read_certificate(folder)
    if content is None:
        if certificate is None and _was_certified(version):
            raise DamagedFileError.of(folder, "is missing", _remedy())
        return
    if not (folder / GOLDEN_FILE).is_file():
        raise DamagedFileError.of(folder / GOLDEN_FILE, "is missing", _remedy())
    for name, digest in content.files.items():
        is_in_certificate = Path(name).is_relative_to(CERTIFICATE_PATH)
        path = folder / Path(name).name if is_in_certificate else version / name
        try:
            is_same = hash_file(path) == digest
        except FileNotFoundError:
            raise DamagedFileError.of(path, "is missing", _remedy()) from None
        except OSError as error:
            raise DamagedFileError.of(
                path, f"cannot be read ({error.strerror})", _remedy()
            ) from None
        if not is_same:
            problem = "has changed since the version was certified"
            raise DamagedFileError.of(path, problem, _remedy())


def _was_certified(version: Path) -> bool:
    try:
        return bool(json.loads((version / PROVENANCE_FILE).read_text())["certified"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def digest_files(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file in a folder and its subfolders, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}
