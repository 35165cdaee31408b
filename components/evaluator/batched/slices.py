"""The slices that rows are in, as TFMA names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma

from components.arrow_types import holds_bytes
from components.evaluator.batched.crowds import MOST_TRACKED, Kind, Largest
from components.evaluator.batched.rows import Members
from components.example_gen.columns.encoded import single_values
from components.example_gen.splits.hashed import hash_rows
from trainer_module.errors import DataError

SliceKey = tuple[tuple[str, Any], ...]
"""TFMA's: columns and values in the order of the columns; empty for all rows."""

LONGEST_SHOWN = 40
"""Characters of a value in a message."""
LONGEST_VALUE = 1000
"""Bytes of a value that may name a slice: TFMA writes it with each metric, and people read it."""


class Slicer:
    """Numbers slices as they come up, over the batches of an evaluation.

    Attributes:
      columns: of each kind of slices the columns that it is by.
      largest: of the kinds of too many slices, those that are numbered.
      keys: the key of each slice, by its number; that of all rows is 0.
      too_long: by column, the rows whose value is too long to name a slice, and the most bytes.
    """

    def __init__(
        self, columns: Sequence[Kind], largest: Mapping[Kind, Largest] | None = None
    ) -> None:
        """There are no slices yet but that of all rows.

        Args:
          columns: of each kind of slices the columns that it is by.
          largest: of kinds of too many slices, which are numbered alone.
        """
        self.columns = [tuple(sorted(names)) for names in columns if names]
        self.largest = dict(largest or {})
        self.keys: list[SliceKey] = [()]
        self.too_long: dict[str, tuple[int, int]] = {}
        self._numbers: dict[SliceKey, int] = {(): 0}
        self._tracked: Counter[Kind] = Counter()
        self._has_left_out = False

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

    def _members_by(self, names: Kind, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of rows and slices by some columns: a row is in each combination of its values."""
        found = self._find(names, batch)
        numbers = np.full(len(found.used), -1, np.int64)
        wanted = np.arange(len(found.used))
        if names in self.largest:
            wanted = np.flatnonzero(self.largest[names].holds(found.hashes))
        for place in wanted.tolist():
            numbers[place] = self._numbered(found.key(place))
        known = numbers[found.where] >= 0
        return found.rows[known], numbers[found.where][known]

    def _numbered(self, key: SliceKey) -> int:
        """The number of a slice; -1 if there are too many."""
        kind = kind_of(key)
        if key not in self._numbers and self._tracked[kind] >= MOST_TRACKED:
            self._has_left_out = True
            return -1
        return self.number(key)

    def number(self, key: SliceKey) -> int:
        """The number of a slice, a new one if it has not come up yet."""
        if key not in self._numbers:
            self._numbers[key] = len(self.keys)
            self.keys.append(key)
            self._tracked[kind_of(key)] += 1
        return self._numbers[key]

    @property
    def is_crowded(self) -> bool:
        """Whether there are more slices of a kind than are added up."""
        return self._has_left_out or any(n > MOST_TRACKED for n in self._tracked.values())

    def count(self, batch: pa.RecordBatch) -> dict[Kind, tuple[np.ndarray, np.ndarray]]:
        """The slices of a batch by kind: [slices] their hashes, and [slices] the rows of each.

        Nothing is numbered. A hash is the same wherever the slice comes up.
        """
        found = {names: self._find(names, batch) for names in self.columns}
        return {
            names: (one.hashes, np.bincount(one.where, minlength=len(one.used)))
            for names, one in found.items()
        }

    def _find(self, names: Kind, batch: pa.RecordBatch) -> _Found:
        first, *others = names
        rows, places, values = self._values_by_row(first, batch)
        columns = [values]
        for name in others:
            more_rows, more_places, values = self._values_by_row(name, batch)
            left, right = _joined(rows, more_rows)
            rows, places = rows[left], places[left] * len(values) + more_places[right]
            columns.append(values)
        used, where = np.unique(places, return_inverse=True)
        return _Found(names, columns, rows, used, where)

    def _values_by_row(
        self, name: str, batch: pa.RecordBatch
    ) -> tuple[np.ndarray, np.ndarray, pa.Array]:
        """The distinct values of each row that can name slices, as `_values_by_row` gives them."""
        rows, places, values = _values_by_row(name, batch)
        if len(values) and holds_bytes(values.type):
            sizes = pc.binary_length(values).to_numpy()
            if (sizes > LONGEST_VALUE).any():
                is_long = sizes[places] > LONGEST_VALUE
                count, largest = self.too_long.get(name, (0, 0))
                self.too_long[name] = count + int(is_long.sum()), max(largest, int(sizes.max()))
                rows, places = rows[~is_long], places[~is_long]
        return rows, places, values


@dataclass(frozen=True)
class _Found:
    """The slices of one kind in a batch."""

    names: Kind
    columns: list[pa.Array]
    """By name, the distinct values."""
    rows: np.ndarray
    """[pairs] in ascending order."""
    used: np.ndarray
    """[slices], of each the places of its values in `columns`, as one number."""
    where: np.ndarray
    """[pairs] the slice of each, as a place in `used`."""

    @cached_property
    def _indices(self) -> list[np.ndarray]:
        """By name, [slices] the place of each slice's value."""
        places, found = self.used, list[np.ndarray]()
        for values in reversed(self.columns):
            places, index = np.divmod(places, max(len(values), 1))
            found.insert(0, index)
        return found

    @property
    def hashes(self) -> np.ndarray:
        """[slices] uint64."""
        total = np.zeros(len(self.used), np.uint64)
        for name, values, index in zip(self.names, self.columns, self._indices, strict=True):
            distinct, where = np.unique(index, return_inverse=True)
            # Without those that are too long to name a slice.
            lists = single_values(values.take(pa.array(distinct)))
            total += hash_rows(pa.record_batch([lists], [name]))[where]
        return total

    def key(self, place: int) -> SliceKey:
        """That of a slice, by its place in `used`."""
        return tuple(
            (name, _as_key(name, values[int(index[place])].as_py()))
            for name, values, index in zip(self.names, self.columns, self._indices, strict=True)
        )


def kind_of(key: SliceKey) -> Kind:
    """The columns that a slice is by."""
    return tuple(name for name, _ in key)


def slice_columns(config: tfma.EvalConfig) -> list[tuple[str, ...]] | None:
    """What slices are by; None where TFMA's config asks for more than columns."""
    if config.cross_slicing_specs:
        return None
    if any(spec.feature_values or spec.slice_keys_sql for spec in config.slicing_specs):
        return None
    return [tuple(spec.feature_keys) for spec in config.slicing_specs]


def _values_by_row(name: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """The distinct values of each row.

    Returns:
      [pairs] rows in ascending order, [pairs] places of their values, and the values of the batch.
    """
    column = batch.column(name)
    if pa.types.is_null(column.type):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), pa.nulls(0)
    rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    encoded = column.flatten().dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
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
