"""The slices that rows are in, as TFMA names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma

from components.evaluator.batched.rows import Members
from trainer_module.errors import DataError

SliceKey = tuple[tuple[str, Any], ...]
"""TFMA's: columns and values in the order of the columns; empty for all rows."""

LONGEST_SHOWN = 40
"""Characters of a value in a message."""
LONGEST_VALUE = 1000
"""Bytes of a value that may name a slice: TFMA writes it with each metric, and people read it."""
MOST_TRACKED = 20_000
"""Slices of a kind that are added up in a file; those that come up after them are left out."""


class Slicer:
    """Numbers slices as they come up, over the batches of an evaluation.

    Attributes:
      columns: of each kind of slices the columns that it is by.
      keys: the key of each slice, by its number; that of all rows is 0.
      full: the kinds of which slices were left out, as there were too many.
      too_long: by column, the rows whose value is too long to name a slice, and the most bytes.
    """

    def __init__(self, columns: Sequence[tuple[str, ...]]) -> None:
        """There are no slices yet but that of all rows.

        Args:
          columns: of each kind of slices the columns that it is by.
        """
        self.columns = [tuple(sorted(names)) for names in columns if names]
        self.keys: list[SliceKey] = [()]
        self.full: set[tuple[str, ...]] = set()
        self.too_long: dict[str, tuple[int, int]] = {}
        self._numbers: dict[SliceKey, int] = {(): 0}
        self._tracked: Counter[tuple[str, ...]] = Counter()

    def members(self, rows: int, batch: pa.RecordBatch) -> Members:
        """Which rows of a batch are in which slices.

        Args:
          rows: how many there are.
          batch: list columns of raw values, with all that slices are by.

        Raises:
          DataError: a value of a column is text that is no UTF-8.
        """
        row_parts, slice_parts = [np.arange(rows)], [np.zeros(rows, np.int64)]
        for names in self.columns:
            found, slices = self._members_by(names, batch)
            row_parts.append(found)
            slice_parts.append(slices)
        joined = np.concatenate(slice_parts)
        return Members(np.concatenate(row_parts), joined, len(self.keys))

    def _members_by(
        self, names: tuple[str, ...], batch: pa.RecordBatch
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of rows and slices by some columns: a row is in each combination of its values."""
        first, *others = names
        rows, places, values = self._values_by_row(first, batch)
        lists = [values]
        for name in others:
            more_rows, more_places, values = self._values_by_row(name, batch)
            left, right = _joined(rows, more_rows)
            rows, places = rows[left], places[left] * len(values) + more_places[right]
            lists.append(values)
        used, where = np.unique(places, return_inverse=True)
        numbers = np.array([self._number(names, lists, place) for place in used], np.int64)
        known = numbers[where] >= 0
        return rows[known], numbers[where][known]

    def _number(self, names: tuple[str, ...], lists: list[list[Any]], place: int) -> int:
        values: list[Any] = []
        for known in reversed(lists):
            place, index = divmod(int(place), len(known))
            values.insert(0, known[index])
        key = tuple(zip(names, values, strict=True))
        if key not in self._numbers:
            if self._tracked[names] >= MOST_TRACKED:
                self.full.add(names)
                return -1
            self._tracked[names] += 1
        return self.number(key)

    def number(self, key: SliceKey) -> int:
        """The number of a slice, a new one if it has not come up yet."""
        if key not in self._numbers:
            self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return self._numbers[key]

    def __contains__(self, key: SliceKey) -> bool:
        """Whether a slice has a number."""
        return key in self._numbers

    def _values_by_row(
        self, name: str, batch: pa.RecordBatch
    ) -> tuple[np.ndarray, np.ndarray, list[Any]]:
        """The distinct values of each row that can name slices, as `_values_by_row` gives them."""
        rows, places, values = _values_by_row(name, batch)
        sizes = np.array([len(v) if isinstance(v, bytes) else 0 for v in values], np.int64)
        if (sizes > LONGEST_VALUE).any():
            is_long = sizes[places] > LONGEST_VALUE
            count, largest = self.too_long.get(name, (0, 0))
            self.too_long[name] = count + int(is_long.sum()), max(largest, int(sizes.max()))
            rows, places = rows[~is_long], places[~is_long]
            values = [
                "" if size > LONGEST_VALUE else v for v, size in zip(values, sizes, strict=True)
            ]
        return rows, places, [_as_key(name, value) for value in values]


def slice_columns(config: tfma.EvalConfig) -> list[tuple[str, ...]] | None:
    """What slices are by; None where TFMA's config asks for more than columns."""
    if config.cross_slicing_specs:
        return None
    if any(spec.feature_values or spec.slice_keys_sql for spec in config.slicing_specs):
        return None
    return [tuple(spec.feature_keys) for spec in config.slicing_specs]


def _values_by_row(name: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """The distinct values of each row.

    Returns:
      [pairs] rows in ascending order, [pairs] places of their values, and the values of the batch.
    """
    column = batch.column(name)
    if pa.types.is_null(column.type):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), []
    rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    encoded = column.flatten().dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    places = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # A value that a row has twice puts it into the slice once.
    pairs = np.unique(rows.astype(np.int64) * max(len(values), 1) + places)
    rows, places = np.divmod(pairs, max(len(values), 1))
    return rows, places, values


def _as_key(name: str, value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        shown = value[:LONGEST_SHOWN].decode(errors="backslashreplace")
        raise DataError(
            f"evaluate.slices: column {name!r} holds {shown!r}, which is no UTF-8 text, so that a"
            " slice cannot be named by it; slice by another column."
        ) from None


def _joined(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of places at which two ascending arrays of rows have the same row."""
    starts, ends = np.searchsorted(right, left), np.searchsorted(right, left, "right")
    counts = ends - starts
    places = np.repeat(np.arange(len(left)), counts)
    offsets = np.arange(len(places)) - np.repeat(counts.cumsum() - counts, counts)
    return places, starts[places] + offsets
