"""The rows of a batch, and the slices that each of them is in, as TFMA names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma

from components.arrow_types import holds_bytes
from trainer_module.errors import DataError


class UnsupportedInBatches(Exception):  # noqa: N818 - not an error, as TFMA computes the metric
    """An exception for a metric that cannot be added up by batches and is left to TFMA."""


Quantiles = np.ndarray
"""The predicted quantiles: float64 of [rows, levels], with no levels if the model predicts none."""


@dataclass(frozen=True)
class ModelRows:
    """The predictions, labels and weights of the rows of a batch, for one model."""

    labels: np.ndarray
    """[rows], of the dtype that the signature gives."""
    predictions: np.ndarray
    """[rows, outputs] float32."""
    quantiles: Quantiles
    weights: np.ndarray
    """[rows] float64; ones where the data has no weights."""

    @classmethod
    def concatenate(cls, batches: Sequence[ModelRows]) -> ModelRows:
        """Returns the rows of several batches, concatenated."""
        names = [field.name for field in fields(cls)]
        parts = ([getattr(batch, name) for batch in batches] for name in names)
        return cls(*map(np.concatenate, parts))

    @property
    def numbers(self) -> np.ndarray:
        """The predictions of a model with one output, [rows].

        Raises:
          UnsupportedInBatches: the model has several outputs, which TFMA turns into separate
            examples.
        """
        if self.predictions.shape[1] != 1:
            raise UnsupportedInBatches(f"the model has {self.predictions.shape[1]} outputs")
        return self.predictions[:, 0]


@dataclass(frozen=True)
class SliceMembership:
    """The pairs of rows and slices: each row is in the slice of all rows, and in slices of each
    kind.

    Attributes:
      rows: [pairs], the row of each pair.
      slices: [pairs], the number of its slice.
      count: slices that have come up so far, in this batch and those before.
    """

    rows: np.ndarray
    slices: np.ndarray
    count: int

    @classmethod
    def of_all(cls, rows: int) -> SliceMembership:
        """Returns the pairs of a number of rows that are all in one slice."""
        return cls(np.arange(rows), np.zeros(rows, np.int64), 1)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Returns values of rows, [rows] or [rows, columns], summed by slice in float64."""
        picked = values[self.rows]
        if picked.ndim == 1:
            return np.bincount(self.slices, picked, self.count)
        columns = (np.bincount(self.slices, column, self.count) for column in picked.T)
        return np.stack([*columns], axis=1)


SliceKey = tuple[tuple[str, Any], ...]
"""TFMA's key of a slice: columns and values, in the columns' order; empty for all rows."""
Kind = tuple[str, ...]
"""The columns that define a kind of slice."""

MAX_TRACKED_SLICES = 20_000
"""The most slices of a kind that are added up; each takes memory."""

MAX_SHOWN_CHARACTERS = 40
"""The most characters of a value in a message."""
MAX_VALUE_BYTES = 1000
"""The most bytes of a value that may name a slice, as TFMA writes the name with each metric."""


class Slicer:
    """The numbering of slices in the order of their first rows, over the batches of an evaluation.

    Attributes:
      columns: the columns of each kind of slice.
      keys: the key of each slice, by its number; the slice of all rows has 0.
      crowded: the kinds of more than `MAX_TRACKED_SLICES` slices, which are no longer measured.
      too_long: by column, the number of rows whose value is too long to name a slice, and the most
        bytes of such a value.
    """

    def __init__(self, columns: Sequence[Kind]) -> None:
        """Creates a slicer that has only the slice of all rows."""
        self.columns = [tuple(sorted(names)) for names in columns if names]
        self.keys: list[SliceKey] = [()]
        self.crowded: set[Kind] = set()
        self.too_long: dict[str, tuple[int, int]] = {}
        self._numbers: dict[SliceKey, int] = {(): 0}
        self._tracked: Counter[Kind] = Counter()

    def members(self, rows: int, batch: pa.RecordBatch) -> SliceMembership:
        """Returns the pairs of rows and slices of a batch.

        Args:
          rows: the number of rows.
          batch: list columns of raw values, with every column that slices are by.

        Raises:
          DataError: a value of a column is text that is not UTF-8.
        """
        row_parts, slice_parts = [np.arange(rows)], [np.zeros(rows, np.int64)]
        for names in self.columns:
            if names not in self.crowded:
                found, slices = self._membership_by(names, batch)
                row_parts.append(found)
                slice_parts.append(slices)
        joined = np.concatenate(slice_parts)
        return SliceMembership(np.concatenate(row_parts), joined, len(self.keys))

    def merge(self, other: Slicer) -> np.ndarray:
        """Adds the slices of another part of the data.

        Returns:
          [slices of the other], the number of each slice here; -1 for kinds of too many slices.
        """
        self.crowded |= other.crowded
        for name, (rows, size) in other.too_long.items():
            self._leave_out(name, rows, size)
        return np.array([self._number(key) for key in other.keys])

    def _number(self, key: SliceKey) -> int:
        """Returns the number of a slice, a new one for a new slice; -1 if its kind has too many."""
        kind = kind_of(key)
        if key not in self._numbers and self._tracked[kind] >= MAX_TRACKED_SLICES:
            self.crowded.add(kind)
        if kind in self.crowded:
            return -1
        if key not in self._numbers:
            self._numbers[key] = len(self.keys)
            self.keys.append(key)
            self._tracked[kind] += 1
        return self._numbers[key]

    def _leave_out(self, name: str, rows: int, size: int) -> None:
        count, largest = self.too_long.get(name, (0, 0))
        self.too_long[name] = count + rows, max(largest, size)

    def _membership_by(self, names: Kind, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Returns the pairs of rows and slices by some columns: a row is in each combination of its
        values.
        """
        first, *others = names
        rows, places, values = self._short_values(first, batch)
        columns = [values]
        for name in others:
            more_rows, more_places, values = self._short_values(name, batch)
            left, right = _joined(rows, more_rows)
            rows, places = rows[left], places[left] * len(values) + more_places[right]
            columns.append(values)
        used, where = np.unique(places, return_inverse=True)
        indices = list[list[int]]()
        for values in reversed(columns):
            used, index = np.divmod(used, max(len(values), 1))
            indices.insert(0, index.tolist())
        numbers = np.zeros(len(used), np.int64)
        for place, of_slice in enumerate(zip(*indices, strict=True)):
            parts = zip(names, columns, of_slice, strict=True)
            key = tuple((name, _as_key(name, values[at].as_py())) for name, values, at in parts)
            numbers[place] = self._number(key)
        known = numbers[where] >= 0
        return rows[known], numbers[where][known]

    def _short_values(
        self, name: str, batch: pa.RecordBatch
    ) -> tuple[np.ndarray, np.ndarray, pa.Array]:
        """Returns the distinct values of each row that are short enough to name slices, as
        `_values_by_row` returns them.
        """
        rows, places, values = _values_by_row(name, batch)
        if len(values) and holds_bytes(values.type):
            sizes = pc.binary_length(values).to_numpy()
            if (sizes > MAX_VALUE_BYTES).any():
                is_long = sizes[places] > MAX_VALUE_BYTES
                self._leave_out(name, int(is_long.sum()), int(sizes.max()))
                rows, places = rows[~is_long], places[~is_long]
        return rows, places, values


def kind_of(key: SliceKey) -> Kind:
    """Returns the columns that a slice is by."""
    return tuple(name for name, _ in key)


def slice_columns(config: tfma.EvalConfig) -> list[Kind] | None:
    """Returns the columns of each kind of slice; None if TFMA's config slices by more than
    columns.
    """
    if config.cross_slicing_specs:
        return None
    if any(spec.feature_values or spec.slice_keys_sql for spec in config.slicing_specs):
        return None
    return [tuple(spec.feature_keys) for spec in config.slicing_specs]


def _values_by_row(name: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Returns the distinct values of each row.

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
        shown = value[:MAX_SHOWN_CHARACTERS].decode(errors="backslashreplace")
        raise DataError(
            f"evaluate.slices: the value {shown!r} of column {name!r} is not UTF-8 text and cannot"
            " name a slice; slice by another column."
        ) from None


def _joined(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns all pairs of places at which two ascending arrays of rows hold the same row."""
    starts, ends = np.searchsorted(right, left), np.searchsorted(right, left, "right")
    counts = ends - starts
    places = np.repeat(np.arange(len(left)), counts)
    offsets = np.arange(len(places)) - np.repeat(counts.cumsum() - counts, counts)
    return places, starts[places] + offsets
