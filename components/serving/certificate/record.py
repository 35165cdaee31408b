"""How a certificate is written, and its golden rows and their answers read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.infra_validator.certificate import CERTIFICATE_PLACE, GOLDEN_FILE, Certificate
from components.infra_validator.rows import CERTIFICATE_FILE, GoldenRow
from components.serving.servable import Arrays
from trainer_module.errors import DamagedFileError
from trainer_module.export.variants.manifest import hash_file

_SAYS, _EXAMPLE = "row", "example"
_ANSWER = "answer "
"""Begins the names of columns of answers."""


def write_certificate(
    certificate: Certificate, folder: Path, rows: Sequence[GoldenRow], answers: Arrays
) -> None:
    """Writes all of a certificate into a folder, with the digest of its golden rows.

    Args:
      certificate: without that digest.
      folder: which there is.
      rows: the golden ones.
      answers: those expected.
    """
    columns = {
        _SAYS: pa.array([row.says for row in rows]),
        _EXAMPLE: pa.array([row.example for row in rows], pa.binary()),
    }
    columns |= {_ANSWER + name: _to_column(values) for name, values in answers.items()}
    pq.write_table(pa.table(columns), folder / GOLDEN_FILE, compression="zstd")
    content = asdict(certificate)
    content["files"][f"{CERTIFICATE_PLACE}/{GOLDEN_FILE}"] = hash_file(folder / GOLDEN_FILE)
    for way in content["ways"].values():
        if math.isinf(way["largest_difference"]):
            way["largest_difference"] = None  # JSON has no infinity.
    text = json.dumps(content, indent=2, allow_nan=False)
    (folder / CERTIFICATE_FILE).write_text(text + "\n")


def read_golden(folder: Path) -> tuple[list[GoldenRow], Arrays]:
    """The golden rows, and what is expected of them.

    Raises:
      DamagedFileError: they cannot be read.
    """
    path = folder / GOLDEN_FILE
    try:
        table = pq.read_table(path)
        says, examples = (table.column(name).to_pylist() for name in (_SAYS, _EXAMPLE))
    except (OSError, KeyError, pa.ArrowException) as error:
        what = f"is damaged ({type(error).__name__})"
        raise DamagedFileError.of(path, what, "push it again.") from None
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
