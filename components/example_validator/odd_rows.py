"""Which rows of the files are not what was expected: read again, once there is an anomaly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tfx import types

from components.arrow_types import holds_bytes
from components.example_gen.columns.encoded import Cell, list_lengths, rows_of, values_of
from components.example_gen.planning import read_origin
from trainer_module.errors import DataError, counted

SHOWN_CHARACTERS = 40
"""Of a value in a message."""

Test = Callable[[pa.Array], np.ndarray]
"""From a list column to whether each of its rows is odd."""


@dataclass(frozen=True)
class Rows:
    """How many rows are odd, of how many, and the first of them."""

    count: int
    total: int
    first: Cell | None = None

    def __str__(self) -> str:
        rows = f"in {self.count:,} of {counted(self.total, 'row')}"
        if self.first is None:
            return rows
        value = f" ({self.first.value})" if self.first.value else ""
        return f"{rows}, first in {self.first}{value}"


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
                    first[name] = batch.first.below(row, show_value(values[row].as_py()))
    except (DataError, OSError):
        return {}
    return {name: Rows(counts[name], total, cell) for name, cell in first.items()}


def show_value(value: Any) -> str:
    """Returns a value, or the values of a row, for a message; nothing for none."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(show_value(one) for one in value[:3])
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = f"{value:.7g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def missing(column: pa.Array) -> np.ndarray:
    """Rows without a value."""
    return list_lengths(column) == 0


def more_than(most: int) -> Test:
    """Rows of more values than that."""
    return lambda column: list_lengths(column) > most


def other_than(size: int) -> Test:
    """Rows of more or fewer values than that."""
    return lambda column: list_lengths(column) != size


def any_value(is_odd: Callable[[pa.Array], np.ndarray]) -> Test:
    """Rows with a value that is odd, by what says so of flat values."""

    def test(column: pa.Array) -> np.ndarray:
        odd, values = np.zeros(len(column), bool), values_of(column)
        if len(values):
            odd[rows_of(column)[is_odd(values)]] = True
        return odd

    return test


def not_one_of(values: Sequence[str]) -> Test:
    """Rows with text that is none of the values."""
    known = pa.array([value.encode() for value in values], pa.binary())
    return any_value(lambda flat: ~pc.is_in(_binary(flat), value_set=known).to_numpy(False))


def outside(low: float, high: float) -> Test:
    """Rows with a number beyond bounds."""
    return any_value(lambda flat: _of_numbers(flat, lambda v: (v < low) | (v > high)))


@any_value
def not_finite(flat: pa.Array) -> np.ndarray:
    """Rows with an infinite number, or NaN."""
    return _of_numbers(flat, lambda values: ~np.isfinite(values))


@any_value
def not_whole(flat: pa.Array) -> np.ndarray:
    """Rows with a number that has a fraction, or with text that is no number."""
    if pa.types.is_floating(flat.type):
        return _of_numbers(flat, lambda values: values != np.round(values))
    return _refused_by(float, flat)


@any_value
def not_a_number(flat: pa.Array) -> np.ndarray:
    """Rows with text that is no number."""
    return _refused_by(float, flat)


@any_value
def not_utf8(flat: pa.Array) -> np.ndarray:
    """Rows with bytes that are no text in UTF-8."""
    return _refused_by(bytes.decode, flat)


def _are_numbers(flat: pa.Array) -> bool:
    return pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)


def _of_numbers(flat: pa.Array, is_odd: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return is_odd(flat.to_numpy()) if _are_numbers(flat) else np.zeros(len(flat), bool)


def _refused_by(read: Callable[[bytes], object], flat: pa.Array) -> np.ndarray:
    """Which texts cannot be read; no numbers."""

    def is_refused(value: bytes) -> bool:
        try:
            read(value)
        except ValueError:
            return True
        return False

    if _are_numbers(flat):
        return np.zeros(len(flat), bool)
    return np.array([is_refused(value) for value in _binary(flat).to_pylist()], bool)


def _binary(flat: pa.Array) -> pa.Array:
    return flat.cast(pa.binary() if holds_bytes(flat.type) else pa.string()).cast(pa.binary())
