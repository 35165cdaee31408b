"""The search for anomalous rows in the original files of examples.

The files are read again after an anomaly.
"""

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
"""The maximum number of characters of a value in a message."""

Test = Callable[[pa.Array], np.ndarray]
"""A function that returns whether each row of an encoded column is anomalous."""


@dataclass(frozen=True)
class Rows:
    """The number of anomalous rows of a column, and the first of them."""

    count: int
    total: int
    first: Cell | None = None
    """The first anomalous cell, or None if it is not known."""

    def __str__(self) -> str:
        rows = f"in {self.count:,} of {counted(self.total, 'row')}"
        if self.first is None:
            return rows
        value = f" ({self.first.value})" if self.first.value else ""
        return f"{rows}, first in {self.first}{value}"


def find_rows(
    examples: types.Artifact | None, searches: Mapping[str, tuple[str, Test]]
) -> dict[str, Rows]:
    """Returns the anomalous rows of the original files of examples, in one pass.

    Args:
      searches: the column and the test of each search, by the name of the search.

    Returns:
      The anomalous rows of each search that has found some, by the name of the search. If the files
        can no longer be read or are too large, the result is empty, and messages do not name rows.
    """
    if examples is None or not searches:
        return {}
    counts, first, total = dict.fromkeys(searches, 0), dict[str, Cell](), 0
    try:
        for batch in read_origin(examples):
            total += batch.rows.num_rows
            columns = set(batch.rows.schema.names)
            for name, (column, test) in searches.items():
                if column not in columns:
                    continue
                values = batch.rows.column(column)
                is_anomalous = test(values)
                counts[name] += int(is_anomalous.sum())
                if is_anomalous.any() and name not in first:
                    row = int(np.argmax(is_anomalous))
                    first[name] = batch.first.below(row, show_value(values[row].as_py()))
    except (DataError, OSError):
        return {}
    return {name: Rows(counts[name], total, cell) for name, cell in first.items()}


def show_value(value: Any) -> str:
    """Returns a value, or the first values of a list, for a message. None is an empty string."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(show_value, value[:3]))
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = f"{value:.7g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def missing(column: pa.Array) -> np.ndarray:
    """Returns whether each row has no value."""
    return list_lengths(column) == 0


def more_than(size: int) -> Test:
    """Returns a test for rows with more than `size` values."""
    return lambda column: list_lengths(column) > size


def other_than(size: int) -> Test:
    """Returns a test for rows with more or fewer than `size` values."""
    return lambda column: list_lengths(column) != size


def any_value(is_anomalous: Callable[[pa.Array], np.ndarray]) -> Test:
    """Returns a test for rows with at least one anomalous value."""

    def test(column: pa.Array) -> np.ndarray:
        result, values = np.zeros(len(column), bool), values_of(column)
        if len(values):
            result[rows_of(column)[is_anomalous(values)]] = True
        return result

    return test


def not_one_of(values: Sequence[str]) -> Test:
    """Returns a test for rows with text that is not one of `values`."""
    expected = pa.array([value.encode() for value in values], pa.binary())
    return any_value(lambda flat: ~pc.is_in(_binary(flat), value_set=expected).to_numpy(False))


def outside(low: float, high: float) -> Test:
    """Returns a test for rows with a number below `low` or above `high`."""
    return any_value(lambda flat: _test_numbers(flat, lambda v: (v < low) | (v > high)))


@any_value
def not_finite(flat: pa.Array) -> np.ndarray:
    """Returns whether each value is infinite or NaN."""
    return _test_numbers(flat, lambda values: ~np.isfinite(values))


@any_value
def not_whole(flat: pa.Array) -> np.ndarray:
    """Returns whether each value is a number with a fraction, or text that is not a number."""
    if pa.types.is_floating(flat.type):
        return _test_numbers(flat, lambda values: values != np.round(values))
    return _cannot_parse(float, flat)


@any_value
def not_a_number(flat: pa.Array) -> np.ndarray:
    """Returns whether each value is text that is not a number."""
    return _cannot_parse(float, flat)


@any_value
def not_utf8(flat: pa.Array) -> np.ndarray:
    """Returns whether each value is bytes that are not UTF-8 text."""
    return _cannot_parse(bytes.decode, flat)


def _are_numbers(flat: pa.Array) -> bool:
    return pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)


def _test_numbers(flat: pa.Array, test: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return test(flat.to_numpy()) if _are_numbers(flat) else np.zeros(len(flat), bool)


def _cannot_parse(parse: Callable[[bytes], object], flat: pa.Array) -> np.ndarray:
    """Returns whether `parse` raises ValueError for each value. Numbers are not parsed."""

    def fails(value: bytes) -> bool:
        try:
            parse(value)
        except ValueError:
            return True
        return False

    if _are_numbers(flat):
        return np.zeros(len(flat), bool)
    return np.array([fails(value) for value in _binary(flat).to_pylist()], bool)


def _binary(flat: pa.Array) -> pa.Array:
    return flat.cast(pa.binary() if holds_bytes(flat.type) else pa.string()).cast(pa.binary())
