"""In which rows of the files something odd is: they are read again, once there is an anomaly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tfx import types

from components.example_gen.columns.encoded import Cell
from components.example_gen.origin import read_origin
from components.example_validator.odd_values import Test
from trainer_module.errors import DataError, counted

SHOWN_CHARACTERS = 40
"""Of a value in a message."""


@dataclass(frozen=True)
class Rows:
    """How many rows are odd, of how many, and the first of them."""

    count: int
    total: int
    first: Cell | None = None

    def __str__(self) -> str:
        if self.first is None:
            return f"in {self.count:,} of {counted(self.total, 'row')}"
        value = f" ({self.first.value})" if self.first.value else ""
        place = f"first in row {self.first.row} of {self.first.file}"
        return f"in {self.count:,} of {counted(self.total, 'row')}, {place}{value}"


def find_rows(
    examples: types.Artifact | None, searches: Mapping[str, tuple[str, Test]]
) -> dict[str, Rows]:
    """Reads the files that an artifact was made of, in one pass.

    Args:
      examples: the artifact.
      searches: columns and what is odd in them, by any name.

    Returns:
      By the names of those that were found. Files that cannot be read any more, or are too large to
      read again, find nothing: the anomaly is told without them.
    """
    if examples is None or not searches:
        return {}
    counts, first, total = dict.fromkeys(searches, 0), dict[str, Cell](), 0
    try:
        for batch in read_origin(examples):
            total += batch.rows.num_rows
            there = set(batch.rows.schema.names)
            for name, (column, is_odd) in searches.items():
                if column not in there:
                    continue
                values = batch.rows.column(column)
                odd = is_odd(values)
                counts[name] += int(odd.sum())
                if odd.any() and name not in first:
                    row = int(np.argmax(odd))
                    value = show_value(values[row].as_py())
                    first[name] = Cell(batch.first.file, batch.first.row + row, value)
    except (DataError, OSError):
        return {}
    return {name: Rows(counts[name], total, cell) for name, cell in first.items()}


def show_value(value: Any) -> str:
    """A value, or the values of a row, for a message; nothing for none."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(show_value(one) for one in value[:3])
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = f"{value:.7g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
