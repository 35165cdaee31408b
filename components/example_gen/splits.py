"""The assignment of rows to splits: by hashes, by order in time, or within each class."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from components.arrow_types import holds_bytes
from components.example_gen.checks.report import TRAIN_SPLIT
from components.example_gen.checks.values import read_order
from components.example_gen.columns.encoded import (
    Cell,
    first_values,
    list_lengths,
    show_names,
    single_values,
)
from components.example_gen.formats import ExampleGenSettings
from trainer_module.data.order import ends_between_values
from trainer_module.errors import DataError, counted

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# The largest number of buckets of to_hash_bucket_fast, so that nearly all bits of a hash are used.
_BUCKETS = 2**63 - 1


def assign_splits(hashes: np.ndarray, hash_buckets: list[int]) -> np.ndarray:
    """Returns the index of each row's split, int64 of shape [rows]."""
    ends = np.cumsum(hash_buckets).astype(np.uint64)
    return np.searchsorted(ends, hashes % ends[-1], side="right")


def split_hashes(rows: pa.RecordBatch, partition_feature: str | None = None) -> np.ndarray:
    """Returns the hash by which each row is assigned to a split, uint64 of shape [rows].

    Args:
      partition_feature: the column to hash, so that rows with equal values are in the same split;
        None hashes all columns.

    Raises:
      DataError: there is no column `partition_feature`.
    """
    if partition_feature is not None:
        if partition_feature not in rows.schema.names:
            raise DataError(
                f"data.split_by: the data has no column {partition_feature!r}; it has"
                f" {show_names(rows.schema.names)}."
            )
        rows = rows.select([partition_feature])
    return hash_rows(rows)


def hash_rows(rows: pa.RecordBatch) -> np.ndarray:
    """Returns a hash of each row's values, uint64 of shape [rows].

    The hash does not depend on the order of the columns.
    """
    total = np.zeros(rows.num_rows, np.uint64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if not pa.types.is_null(column.type):
            total += _hash_column(column, _seed(name))
    return _mix(total)


def _hash_column(column: pa.Array, seed: np.uint64) -> np.ndarray:
    """Returns the sum of the hashes of each row's values in a column and their positions.

    The sum of a row without values is 0.
    """
    lengths = list_lengths(column)
    hashes = _hash_values(column.flatten())
    if np.all(lengths == 1):
        return _mix(hashes + seed)
    starts = np.cumsum(lengths) - lengths
    positions = (np.arange(len(hashes)) - np.repeat(starts, lengths)).astype(np.uint64)
    hashes = _mix(hashes + seed + positions * _GOLDEN)
    # The sum of a row is a difference of cumulative sums. Overflows of uint64 cancel out.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes)])
    return sums[starts + lengths] - sums[starts]


def _hash_values(values: pa.Array) -> np.ndarray:
    if pa.types.is_floating(values.type):
        # Adding 0 gives -0.0 the bits of 0.0, as both are equal.
        bits = (values.to_numpy() + np.float32(0)).view(np.uint32)
        return _mix(bits.astype(np.uint64))
    if pa.types.is_integer(values.type):
        return _mix(values.to_numpy().astype(np.uint64))
    strings = tf.constant(values.to_numpy(zero_copy_only=False), tf.string)
    return tf.strings.to_hash_bucket_fast(strings, _BUCKETS).numpy().astype(np.uint64)


def _seed(name: str) -> np.uint64:
    return np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<u8")[0]


def _mix(bits: np.ndarray) -> np.ndarray:
    """Returns the bits mixed by the finalizer of SplitMix64 (Steele et al., 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True)
class Ranks:
    """The groups and keys by which the rows of a batch are assigned to splits."""

    groups: pa.Array
    """The group of each row, binary of shape [rows]."""
    keys: np.ndarray
    """The keys that order the rows of a group, of shape [rows]."""
    missing: np.ndarray | None = None
    """Whether a row has no value of `order_by`, so that it counts as the oldest, bool of shape
    [rows], or None without `order_by`."""

    def only(self, kept: np.ndarray) -> Ranks:
        """Returns the ranks of the rows for which `kept`, bool of shape [rows], is True."""
        if kept.all():
            return self
        missing = None if self.missing is None else self.missing[kept]
        return Ranks(self.groups.filter(pa.array(kept)), self.keys[kept], missing)


@dataclass(frozen=True)
class Cuts:
    """The boundaries between the splits in each group."""

    groups: pa.Array
    """The groups, binary of shape [groups]."""
    last_keys: np.ndarray
    """The last key of each split in each group, except for the last split, of shape
    [groups, splits - 1]."""
    order: np.ndarray
    """The indices of the splits, in the order in which they are filled."""
    notes: list[str]
    """Notes on rows without a value of `order_by`."""

    def assign(self, ranks: Ranks) -> np.ndarray:
        """Returns the index of each row's split, int64 of shape [rows]."""
        group = pc.index_in(ranks.groups, self.groups).to_numpy()
        return self.order[(ranks.keys[:, None] > self.last_keys[group]).sum(axis=1)]


def rank_rows(rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings) -> Ranks:
    """Returns the ranks of a batch's rows.

    With `order_by`, rows are ordered by the column. Otherwise the groups are the classes, and the
    rows of a class are ordered by their hash.

    Raises:
      DataError: a value cannot be ordered, or there is no such column.
    """
    if settings.order_by:
        order = read_order(rows, first, settings.order_by)
        return Ranks(_one_group(rows), order.keys, order.missing)
    return Ranks(_classes(rows, settings.label), hash_rows(rows))


def cut_groups(
    parts: Sequence[Ranks], split_names: Sequence[str], shares: Sequence[int], order_by: str
) -> Cuts:
    """Returns the boundaries of the splits in each group, from the ranks of all rows.

    Args:
      split_names: the names of the splits. Train is filled first, then the other splits in order.
      order_by: the column that orders the rows, or an empty string for stratified splits.
    """
    order = np.array(sorted(range(len(shares)), key=lambda i: split_names[i] != TRAIN_SPLIT))
    cumulative_shares = np.cumsum(np.array(shares)[order])[:-1] / sum(shares)
    encoded = pa.chunked_array([part.groups for part in parts]).dictionary_encode()
    encoded = encoded.combine_chunks()
    groups, codes = encoded.dictionary, encoded.indices.to_numpy()
    keys = np.concatenate([part.keys for part in parts])
    by_group = np.lexsort((keys, codes))
    sizes = np.bincount(codes)
    if order_by:
        ends = ends_between_values(keys[by_group], cumulative_shares)[None, :]
    else:
        ends = _ends_in_proportion(groups, sizes, cumulative_shares)
    last_rows = (np.cumsum(sizes) - sizes)[:, None] + ends - 1
    missing = sum(int(part.missing.sum()) for part in parts if part.missing is not None)
    notes = []
    if missing:
        notes = [f"{counted(missing, 'row')} without a value of {order_by!r} count as the oldest"]
    return Cuts(groups, keys[by_group][last_rows], order, notes)


def _ends_in_proportion(
    classes: pa.Array, sizes: np.ndarray, cumulative_shares: np.ndarray
) -> np.ndarray:
    """Returns the cumulative number of rows of each class in the splits, of shape
    [classes, splits - 1].

    The number of rows of a class in a split differs from the split's share by at most one row. A
    hash of the class determines the rounding, so that the share of many small classes is right in
    total. The first split has at least one row of each class.
    """
    rounding = hash_rows(pa.record_batch([single_values(classes)], ["class"])) / 2.0**64
    ends = np.floor(sizes[:, None] * cumulative_shares + rounding[:, None]).astype(np.int64)
    return np.clip(ends, 1, sizes[:, None])


def _classes(rows: pa.RecordBatch, label: str) -> pa.Array:
    """Returns the label of each row as bytes, which are empty for a row without a label."""
    if label not in rows.schema.names:
        return _one_group(rows)
    values = first_values(rows.column(label))
    if not holds_bytes(values.type):
        values = values.cast(pa.string())
    return pc.fill_null(values.cast(pa.binary()), b"")


def _one_group(rows: pa.RecordBatch) -> pa.Array:
    return pa.repeat(pa.scalar(b"", pa.binary()), rows.num_rows)
