"""What is kept of a certificate in a version: the figures, the golden rows and their answers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.infra_validator.rows import CERTIFICATE_FILE, GoldenRow
from pipeline.serving.servable import Arrays
from trainer_module.errors import DataError

GOLDEN_FILE = "golden.parquet"
_SAYS, _EXAMPLE = "row", "example"
_ANSWER = "answer "
"""Begins the names of columns of answers."""
_CHUNK = 1 << 20


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
    """SHA-256 of each of the model's files, by its path."""

    def write(self, folder: Path, rows: Sequence[GoldenRow], answers: Arrays) -> None:
        """Writes all of it into a folder.

        Args:
          folder: which there is.
          rows: the golden ones.
          answers: those expected.
        """
        content = asdict(self)
        for way in content["ways"].values():
            if math.isinf(way["largest_difference"]):
                way["largest_difference"] = None  # JSON has no infinity.
        text = json.dumps(content, indent=2, allow_nan=False)
        (folder / CERTIFICATE_FILE).write_text(text + "\n")
        columns = {
            _SAYS: pa.array([row.says for row in rows]),
            _EXAMPLE: pa.array([row.example for row in rows], pa.binary()),
        }
        columns |= {_ANSWER + name: _to_column(values) for name, values in answers.items()}
        pq.write_table(pa.table(columns), folder / GOLDEN_FILE, compression="zstd")


def read_certificate(folder: Path) -> Certificate | None:
    """The certificate of a version; None where it has none.

    Raises:
      DataError: it cannot be read, or its golden rows are there alone.
    """
    path = folder / CERTIFICATE_FILE
    try:
        content = json.loads(path.read_text())
        ways = {name: _read_agreement(way) for name, way in content.pop("ways").items()}
        return Certificate(**content, ways=ways)
    except FileNotFoundError:
        if not (folder / GOLDEN_FILE).exists():
            return None
        raise DataError(
            f"{path} is gone, which the version was pushed with: push it again."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}): push it again.") from None


def _read_agreement(way: dict[str, Any]) -> Agreement:
    largest = way.pop("largest_difference")
    return Agreement(math.inf if largest is None else float(largest), **way)


def read_golden(folder: Path) -> tuple[list[GoldenRow], Arrays]:
    """The golden rows, and what is expected of them.

    Raises:
      DataError: they cannot be read.
    """
    path = folder / GOLDEN_FILE
    try:
        table = pq.read_table(path)
        says, examples = (table.column(name).to_pylist() for name in (_SAYS, _EXAMPLE))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}): push it again.") from None
    rows = [GoldenRow(*row) for row in zip(says, examples, strict=True)]
    answers = {
        name.removeprefix(_ANSWER): _to_array(table.column(name).combine_chunks())
        for name in table.column_names
        if name.startswith(_ANSWER)
    }
    return rows, answers


def _to_column(values: np.ndarray) -> pa.Array:
    flat = values.reshape(-1)
    column = pa.array(flat.tolist(), pa.binary()) if values.dtype == object else pa.array(flat)
    if values.ndim == 1:
        return column
    return pa.FixedSizeListArray.from_arrays(column, values[0].size)


def _to_array(column: pa.Array) -> np.ndarray:
    flat = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    values: np.ndarray = flat.to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1) if flat is not column else values


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in files}


def digest_file(path: Path) -> str:
    """SHA-256 of a file.

    Raises:
      OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
