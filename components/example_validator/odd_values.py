"""Which rows of a column are not what was expected: tests of encoded columns, vectorised."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_types import holds_bytes
from components.example_gen.columns.encoded import list_lengths

Test = Callable[[pa.Array], np.ndarray]
"""From a list column to whether each of its rows is odd."""


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
        if pa.types.is_null(column.type):
            return np.zeros(len(column), bool)
        rows = np.repeat(np.arange(len(column)), list_lengths(column))
        odd = np.zeros(len(column), bool)
        odd[rows[is_odd(column.flatten())]] = True
        return odd

    return test


def not_one_of(values: Sequence[str]) -> Test:
    """Rows with text that is none of the values."""
    known = pa.array([value.encode() for value in values], pa.binary())
    return any_value(
        lambda flat: ~pc.is_in(_binary(flat), value_set=known).to_numpy(zero_copy_only=False)
    )


def outside(low: float, high: float) -> Test:
    """Rows with a number beyond bounds."""
    return any_value(lambda flat: _numbers(flat, lambda v: (v < low) | (v > high)))


@any_value
def not_finite(flat: pa.Array) -> np.ndarray:
    """Rows with an infinite number, or NaN."""
    return _numbers(flat, lambda values: ~np.isfinite(values))


@any_value
def not_whole(flat: pa.Array) -> np.ndarray:
    """Rows with a number that has a fraction, or with text that is no number."""
    if pa.types.is_floating(flat.type):
        return _numbers(flat, lambda values: values != np.round(values))
    return _each(flat, _is_no_number)


@any_value
def not_a_number(flat: pa.Array) -> np.ndarray:
    """Rows with text that is no number."""
    return _each(flat, _is_no_number)


@any_value
def not_utf8(flat: pa.Array) -> np.ndarray:
    """Rows with bytes that are no text in UTF-8."""
    return _each(flat, _is_no_utf8)


def _numbers(flat: pa.Array, is_odd: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    is_number = pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)
    return is_odd(flat.to_numpy()) if is_number else np.zeros(len(flat), bool)


def _each(flat: pa.Array, is_odd: Callable[[bytes], bool]) -> np.ndarray:
    if pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type):
        return np.zeros(len(flat), bool)
    return np.array([is_odd(value) for value in _binary(flat).to_pylist()], bool)


def _binary(flat: pa.Array) -> pa.Array:
    is_text = holds_bytes(flat.type)
    return flat.cast(pa.binary() if is_text else pa.string()).cast(pa.binary())


def _is_no_number(value: bytes) -> bool:
    try:
        float(value)
    except ValueError:
        return True
    return False


def _is_no_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False
