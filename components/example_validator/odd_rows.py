"""The search for anomalous rows in the original files, which are read again after an anomaly."""

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
"""The most characters of a value in a message."""

Test = Callable[[pa.Array], np.ndarray]
"""A function from a list column to whether each of its rows is anomalous."""


@dataclass(frozen=True)
class Rows:
    """The number of anomalous rows, the number of all rows, and the first anomalous one."""

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
    """Returns the anomalous rows of the files that an artifact was made from, in one pass.

    Args:
      examples: the artifact.
      searches: the column and the test of each search, by the search's name.

    Returns:
      The rows by the name of the search, for searches that found any. Empty if the files can no
        longer be read or are too large: the anomaly is then reported without rows.
    """
    if examples is None or not searches:
        return {}
    counts, first, total = dict.fromkeys(searches, 0), dict[str, Cell](), 0
    try:
        for batch in read_origin(examples):
            total += batch.rows.num_rows
            columns = set(batch.rows.schema.names)
            for name, (column, is_odd) in searches.items():
                if column not in columns:
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
    """Returns a value, or the values of a row, for a message; empty for None."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(show_value(one) for one in value[:3])
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = f"{value:.7g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def missing(column: pa.Array) -> np.ndarray:
    """Returns which rows have no value."""
    return list_lengths(column) == 0


def more_than(most: int) -> Test:
    """Returns a test for rows with more values than a number."""
    return lambda column: list_lengths(column) > most


def other_than(size: int) -> Test:
    """Returns a test for rows with more or fewer values than a number."""
    return lambda column: list_lengths(column) != size


def any_value(is_odd: Callable[[pa.Array], np.ndarray]) -> Test:
    """Returns a test for rows with an anomalous value, given a test for flat values."""

    def test(column: pa.Array) -> np.ndarray:
        odd, values = np.zeros(len(column), bool), values_of(column)
        if len(values):
            odd[rows_of(column)[is_odd(values)]] = True
        return odd

    return test


def not_one_of(values: Sequence[str]) -> Test:
    """Returns a test for rows with text that is not one of the values."""
    known = pa.array([value.encode() for value in values], pa.binary())
    return any_value(lambda flat: ~pc.is_in(_binary(flat), value_set=known).to_numpy(False))


def outside(low: float, high: float) -> Test:
    """Returns a test for rows with a number beyond bounds."""
    return any_value(lambda flat: _of_numbers(flat, lambda v: (v < low) | (v > high)))


@any_value
def not_finite(flat: pa.Array) -> np.ndarray:
    """Returns which values are infinite or NaN."""
    return _of_numbers(flat, lambda values: ~np.isfinite(values))


@any_value
def not_whole(flat: pa.Array) -> np.ndarray:
    """Returns which values are numbers with a fraction, or text that is not a number."""
    if pa.types.is_floating(flat.type):
        return _of_numbers(flat, lambda values: values != np.round(values))
    return _refused_by(float, flat)


@any_value
def not_a_number(flat: pa.Array) -> np.ndarray:
    """Returns which values are text that is not a number."""
    return _refused_by(float, flat)


@any_value
def not_utf8(flat: pa.Array) -> np.ndarray:
    """Returns which values are bytes that are not UTF-8 text."""
    return _refused_by(bytes.decode, flat)


def _are_numbers(flat: pa.Array) -> bool:
    return pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)


def _of_numbers(flat: pa.Array, is_odd: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return is_odd(flat.to_numpy()) if _are_numbers(flat) else np.zeros(len(flat), bool)


def _refused_by(read: Callable[[bytes], object], flat: pa.Array) -> np.ndarray:
    """Returns which texts a function cannot parse; False for numbers."""

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
