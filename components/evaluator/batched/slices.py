"""The rows of a batch, and the slices of each row, with TFMA's names of slices."""

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


class UnsupportedInBatches(Exception):  # noqa: N818 - no error: TFMA takes over
    """Raised if a metric cannot be computed in batches; then TFMA computes the metrics."""


Quantiles = np.ndarray
"""The predicted quantiles, [rows, levels] float64; [rows, 0] if the model predicts no quantiles."""


@dataclass(frozen=True)
class ModelRows:
    """The predictions, labels and weights of the rows of a batch, for one model."""

    labels: np.ndarray
    """[rows], in the dtype of the signature's output."""
    predictions: np.ndarray
    """[rows, outputs] float32."""
    quantiles: Quantiles
    weights: np.ndarray
    """[rows] float64; 1 if the data has no weights."""

    @classmethod
    def concatenate(cls, batches: Sequence[ModelRows]) -> ModelRows:
        """Returns the concatenated rows of several batches."""
        names = [field.name for field in fields(cls)]
        parts = ([getattr(batch, name) for batch in batches] for name in names)
        return cls(*map(np.concatenate, parts))

    @property
    def numbers(self) -> np.ndarray:
        """The predictions of a model with one output, [rows].

        Raises:
          UnsupportedInBatches: the model has several outputs; TFMA makes an example of each
            output.
        """
        if self.predictions.shape[1] != 1:
            raise UnsupportedInBatches(f"the model has {self.predictions.shape[1]} outputs")
        return self.predictions[:, 0]


@dataclass(frozen=True)
class SliceMembership:
    """The pairs of rows and slices: each row is in the slice of all rows, and in other slices.

    Attributes:
      rows: [pairs], the row of each pair.
      slices: [pairs], the number of each pair's slice.
      count: the number of slices so far, in this batch and earlier batches.
    """

    rows: np.ndarray
    slices: np.ndarray
    count: int

    @classmethod
    def of_all(cls, rows: int) -> SliceMembership:
        """Returns the pairs for a number of rows that are all in slice 0."""
        return cls(np.arange(rows), np.zeros(rows, np.int64), 1)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Returns the float64 sums by slice of the values of rows, [rows] or [rows, columns]."""
        picked = values[self.rows]
        if picked.ndim == 1:
            return np.bincount(self.slices, picked, self.count)
        columns = (np.bincount(self.slices, column, self.count) for column in picked.T)
        return np.stack([*columns], axis=1)


SliceKey = tuple[tuple[str, Any], ...]
"""TFMA's key of a slice: its columns, sorted, and their values. Empty for the slice of all rows."""
Kind = tuple[str, ...]
"""The columns that define a kind of slice."""

MAX_TRACKED_SLICES = 20_000
"""The maximum number of slices of a kind that are measured, because each slice takes memory."""

MAX_SHOWN_CHARACTERS = 40
"""The maximum number of characters of a value in a message."""
MAX_VALUE_BYTES = 1000
"""The maximum number of bytes of a slice's value, because TFMA writes the value with each
metric."""


class Slicer:
    """Numbers the slices of an evaluation in the order of their first rows.

    Attributes:
      columns: the columns of each kind of slice.
      keys: the key of each slice, by its number; the slice of all rows has the number 0.
      crowded: the kinds with more than `MAX_TRACKED_SLICES` slices, which are not measured.
      too_long: by column, the number of rows with a value of more than `MAX_VALUE_BYTES` bytes, and
        the bytes of the longest value.
    """

    def __init__(self, columns: Sequence[Kind]) -> None:
        self.columns = [tuple(sorted(names)) for names in columns if names]
        self.keys: list[SliceKey] = [()]
        self.crowded: set[Kind] = set()
        self.too_long: dict[str, tuple[int, int]] = {}
        self._numbers: dict[SliceKey, int] = {(): 0}
        self._tracked: Counter[Kind] = Counter()

    def members(self, rows: int, batch: pa.RecordBatch) -> SliceMembership:
        """Returns the pairs of rows and slices of a batch.

        Args:
          batch: the raw columns, as lists of values, including the columns of all slices.

        Raises:
          DataError: a value of a column is text that is not UTF-8.
        """
        row_parts, slice_parts = [np.arange(rows)], [np.zeros(rows, np.int64)]
        for names in self.columns:
            if names not in self.crowded:
                rows_in_slices, slices = self._membership_by(names, batch)
                row_parts.append(rows_in_slices)
                slice_parts.append(slices)
        joined = np.concatenate(slice_parts)
        return SliceMembership(np.concatenate(row_parts), joined, len(self.keys))

    def merge(self, other: Slicer) -> np.ndarray:
        """Adds the slices of the slicer of another part of the data.

        Returns:
          [slices of the other], the number of each of its slices here, or -1 for a slice of a kind
            with too many slices.
        """
        self.crowded |= other.crowded
        for name, (rows, size) in other.too_long.items():
            self._leave_out(name, rows, size)
        return np.array([self._number(key) for key in other.keys])

    def _number(self, key: SliceKey) -> int:
        """Returns the number of a slice, or -1 if its kind has too many slices.

        A new slice gets the next number.
        """
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
        """Returns the pairs of rows and slices by some columns.

        A row with several values in a column is in the slices of all combinations of its values.
        """
        first, *others = names
        rows, positions, values = self._short_values(first, batch)
        columns = [values]
        for name in others:
            more_rows, more_positions, values = self._short_values(name, batch)
            left, right = _join_rows(rows, more_rows)
            rows, positions = rows[left], positions[left] * len(values) + more_positions[right]
            columns.append(values)
        used, inverse = np.unique(positions, return_inverse=True)
        indices = list[list[int]]()
        for values in reversed(columns):
            used, index = np.divmod(used, max(len(values), 1))
            indices.insert(0, index.tolist())
        numbers = np.zeros(len(used), np.int64)
        for slice_index, value_indices in enumerate(zip(*indices, strict=True)):
            parts = zip(names, columns, value_indices, strict=True)
            key = tuple(
                (name, _as_key(name, values[value_index].as_py()))
                for name, values, value_index in parts
            )
            numbers[slice_index] = self._number(key)
        is_kept = numbers[inverse] >= 0
        return rows[is_kept], numbers[inverse][is_kept]

    def _short_values(
        self, name: str, batch: pa.RecordBatch
    ) -> tuple[np.ndarray, np.ndarray, pa.Array]:
        """Returns the result of `_values_by_row`, without the values that are too long."""
        rows, positions, values = _values_by_row(name, batch)
        if len(values) and holds_bytes(values.type):
            sizes = pc.binary_length(values).to_numpy()
            if (sizes > MAX_VALUE_BYTES).any():
                is_long = sizes[positions] > MAX_VALUE_BYTES
                self._leave_out(name, int(is_long.sum()), int(sizes.max()))
                rows, positions = rows[~is_long], positions[~is_long]
        return rows, positions, values


def kind_of(key: SliceKey) -> Kind:
    """Returns the kind of a slice: its columns."""
    return tuple(name for name, _ in key)


def slice_columns(config: tfma.EvalConfig) -> list[Kind] | None:
    """Returns the columns of each kind of slice, or None if the config has other kinds of
    slices.
    """
    if config.cross_slicing_specs:
        return None
    if any(spec.feature_values or spec.slice_keys_sql for spec in config.slicing_specs):
        return None
    return [tuple(spec.feature_keys) for spec in config.slicing_specs]


def _values_by_row(name: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Returns the distinct values of each row.

    Returns:
      The row of each pair, [pairs] ascending; the position of its value, [pairs]; and the distinct
        values of the batch.
    """
    column = batch.column(name)
    if pa.types.is_null(column.type):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), pa.nulls(0)
    rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    encoded = column.flatten().dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
    positions = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # If a row has a value twice, the pair occurs once.
    pairs = np.unique(rows.astype(np.int64) * max(len(values), 1) + positions)
    rows, positions = np.divmod(pairs, max(len(values), 1))
    return rows, positions, values


def _as_key(name: str, value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        shown = value[:MAX_SHOWN_CHARACTERS].decode(errors="backslashreplace")
        raise DataError(
            f"evaluate.slices: the value {shown!r} of column {name!r} is not UTF-8 text and cannot"
            " define a slice; slice by another column."
        ) from None


def _join_rows(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns all pairs of positions at which two ascending arrays contain the same row."""
    starts, ends = np.searchsorted(right, left), np.searchsorted(right, left, "right")
    counts = ends - starts
    positions = np.repeat(np.arange(len(left)), counts)
    offsets = np.arange(len(positions)) - np.repeat(counts.cumsum() - counts, counts)
    return positions, starts[positions] + offsets
