"""Whether a column can say how much each example counts."""

from __future__ import annotations

import difflib

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import Cell, list_lengths, shown
from trainer_module.errors import DataError


def check_weights(rows: pa.RecordBatch, first: Cell, name: str) -> np.ndarray:
    """Refuses a batch in which some weight is missing, no number, infinite or negative.

    Args:
      rows: list columns of int64, float32 or binary.
      first: where the batch begins.
      name: the column of the weights.

    Returns:
      The weights, [rows] float64.

    Raises:
      DataError: names the first row that has no usable weight.
    """
    if name not in rows.schema.names:
        near = difflib.get_close_matches(name, rows.schema.names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "name one that is there, or none."
        raise DataError(f"There is no column {name!r}, which data.weight names; {hint}")
    column = rows.column(name)
    lengths = list_lengths(column)
    usable = lengths == 1
    if usable.all():
        values = column.flatten()
        is_number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
        numbers = values.to_numpy().astype(np.float64) if is_number else np.full(len(rows), -1.0)
        usable = np.isfinite(numbers) & (numbers >= 0)
    if usable.all():
        return numbers
    row = int(np.argmin(usable))
    found = ", ".join(str(_show(value)) for value in column[row].as_py() or []) or "missing"
    raise DataError(
        f"Weight {name!r} is {found} in row {first.row + row} of {first.file}: every row needs a "
        "number that is not negative; 0 is for one that must not count."
    )


def _show(value: object) -> object:
    return shown(value) if isinstance(value, bytes) else value
