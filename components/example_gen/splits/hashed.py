"""Rows to splits by a stable hash of their values, vectorised.

The values are hashed, not the serialized tf.Examples: protobuf orders a map's entries differently
in each process. So equal rows land in the same split whatever their file, order or process.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import tensorflow as tf

from components.example_gen.checks.columns import show_names
from components.example_gen.columns.encoded import list_lengths
from trainer_module.errors import DataError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# The largest modulus of to_hash_bucket_fast: as good as the whole farmhash fingerprint.
_BUCKETS = 2**63 - 1


def assign_splits(hashes: np.ndarray, hash_buckets: list[int]) -> np.ndarray:
    """The index of each row's split, int64 of shape [rows].

    Args:
      hashes: uint64 of shape [rows], as `split_hashes` gives them.
      hash_buckets: each split's share.
    """
    ends = np.cumsum(hash_buckets).astype(np.uint64)
    return np.searchsorted(ends, hashes % ends[-1], side="right")


def split_hashes(rows: pa.RecordBatch, partition_feature: str | None = None) -> np.ndarray:
    """What each row is split by, uint64 of shape [rows].

    Args:
      rows: list columns of int64, float32 or binary.
      partition_feature: hash this column alone, so that its equal values stay together.

    Raises:
      DataError: there is no column `partition_feature`.
    """
    if partition_feature is not None:
        if partition_feature not in rows.schema.names:
            raise DataError(
                f"Splits are to be made by {partition_feature!r}, but the data has no such column;"
                f" it has {show_names(rows.schema.names)}."
            )
        rows = rows.select([partition_feature])
    return hash_rows(rows)


def hash_rows(rows: pa.RecordBatch) -> np.ndarray:
    """A hash of each row's values, uint64 of shape [rows]; the order of columns is no matter."""
    total = np.zeros(rows.num_rows, np.uint64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if not pa.types.is_null(column.type):
            total += _hash_column(column, _seed(name))
    return _mix(total)


def _hash_column(column: pa.Array, seed: np.uint64) -> np.ndarray:
    """Sum over a row's values of a hash of column, position and value; 0 where there is none."""
    lengths = list_lengths(column)
    hashes = _hash_values(column.flatten())
    if np.all(lengths == 1):
        return _mix(hashes + seed)
    starts = np.cumsum(lengths) - lengths
    positions = (np.arange(len(hashes)) - np.repeat(starts, lengths)).astype(np.uint64)
    hashes = _mix(hashes + seed + positions * _GOLDEN)
    # Sums of runs as differences of a running sum; the overflow of uint64 cancels out.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes)])
    return sums[starts + lengths] - sums[starts]


def _hash_values(values: pa.Array) -> np.ndarray:
    if pa.types.is_floating(values.type):
        # Adding 0 makes -0.0, which equals 0.0, the same bits.
        bits = (values.to_numpy() + np.float32(0)).view(np.uint32)
        return _mix(bits.astype(np.uint64))
    if pa.types.is_integer(values.type):
        return _mix(values.to_numpy().astype(np.uint64))
    strings = tf.constant(values.to_numpy(zero_copy_only=False), tf.string)
    return tf.strings.to_hash_bucket_fast(strings, _BUCKETS).numpy().astype(np.uint64)


def _seed(name: str) -> np.uint64:
    return np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<u8")[0]


def _mix(bits: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele et al., 2014): every bit depends on every other."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
