"""Splits for which a row has to be compared with others: by class in proportion, or by time.

A first pass over the data ranks the rows: each has a group, such as its class, and a key. Each
group is then cut at some of its keys, and rows with equal keys stay together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_types import holds_bytes
from components.example_gen.checks.columns import show_names
from components.example_gen.checks.whole import TRAIN_SPLIT
from components.example_gen.columns.encoded import Cell, first_values, shown, single_values
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.splits.hashed import hash_rows
from trainer_module.data.examples import ends_between_values, ordered_keys, parse_times
from trainer_module.errors import DataError, counted


@dataclass(frozen=True)
class Ranks:
    """What some rows are split by."""

    groups: pa.Array
    """Binary of shape [rows]."""
    keys: np.ndarray
    """Of shape [rows]; a group's rows are taken in their order."""
    missing: np.ndarray | None = None
    """Of shape [rows] bool: which have no value to be ordered by, and count as the oldest; None
    where rows are not ordered by a value."""

    def only(self, kept: np.ndarray) -> Ranks:
        """The same for some of the rows, [rows] bool."""
        if kept.all():
            return self
        missing = None if self.missing is None else self.missing[kept]
        return Ranks(self.groups.filter(pa.array(kept)), self.keys[kept], missing)


@dataclass(frozen=True)
class Cuts:
    """Which keys of each group go to which split."""

    groups: pa.Array
    """Binary of shape [groups]."""
    last_keys: np.ndarray
    """Of each split but the last, of shape [groups, splits - 1]."""
    order: np.ndarray
    """The indices of the splits, in the order in which they are filled."""
    notes: list[str]
    """What people should know of rows that could not be compared."""

    def assign(self, ranks: Ranks) -> np.ndarray:
        """The index of each row's split, int64 of shape [rows]."""
        group = pc.index_in(ranks.groups, self.groups).to_numpy()
        return self.order[(ranks.keys[:, None] > self.last_keys[group]).sum(axis=1)]


def rank_rows(rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings) -> Ranks:
    """Ranks a batch by time where `order_by` names a column, and by class otherwise.

    Args:
      rows: list columns of int64, float32 or binary.
      first: where the batch begins.
      settings: say which.

    Raises:
      DataError: a value cannot be ordered, or there is no such column.
    """
    if settings.order_by:
        return rank_by_value(rows, first, settings.order_by)
    return Ranks(_classes(rows, settings.label), hash_rows(rows))


def cut_groups(
    parts: Sequence[Ranks], split_names: Sequence[str], shares: Sequence[int], order_by: str
) -> Cuts:
    """Decides from the ranks of all rows how each group is cut.

    Args:
      parts: the ranks, in any order.
      split_names: the names of the splits; train is filled first, the others as they stand.
      shares: of each split.
      order_by: the column that the rows are ordered by; empty where they are stratified.
    """
    order = np.array(sorted(range(len(shares)), key=lambda i: split_names[i] != TRAIN_SPLIT))
    parts_of_whole = np.cumsum(np.array(shares)[order])[:-1] / sum(shares)
    encoded = pa.chunked_array([part.groups for part in parts]).dictionary_encode()
    encoded = encoded.combine_chunks()
    groups, codes = encoded.dictionary, encoded.indices.to_numpy()
    keys = np.concatenate([part.keys for part in parts])
    by_group = np.lexsort((keys, codes))
    sizes = np.bincount(codes)
    if order_by:
        ends = ends_between_values(keys[by_group], parts_of_whole)[None, :]
    else:
        ends = _ends_in_proportion(groups, sizes, parts_of_whole)
    last_rows = (np.cumsum(sizes) - sizes)[:, None] + ends - 1
    missing = sum(int(part.missing.sum()) for part in parts if part.missing is not None)
    notes = []
    if missing:
        notes = [f"{counted(missing, 'row')} without a value of {order_by!r} count as the oldest"]
    return Cuts(groups, keys[by_group][last_rows], order, notes)


def _ends_in_proportion(
    classes: pa.Array, sizes: np.ndarray, parts_of_whole: np.ndarray
) -> np.ndarray:
    """How many rows of each class are in a split or one before it, of shape [classes, splits - 1].

    Each class has its share to within one row. Which way it is rounded depends on the class, so
    that many small classes have their share together; the first split has one row at least.
    """
    rounding = hash_rows(pa.record_batch([single_values(classes)], ["class"])) / 2.0**64
    ends = np.floor(sizes[:, None] * parts_of_whole + rounding[:, None]).astype(np.int64)
    return np.clip(ends, 1, sizes[:, None])


def _classes(rows: pa.RecordBatch, label: str) -> pa.Array:
    """The label of each row as binary, `` where there is none."""
    if label not in rows.schema.names:
        return _one_group(rows)
    values = first_values(rows.column(label))
    if not holds_bytes(values.type):
        values = values.cast(pa.string())
    return pc.fill_null(values.cast(pa.binary()), b"")


def _one_group(rows: pa.RecordBatch) -> pa.Array:
    return pa.repeat(pa.scalar(b"", pa.binary()), rows.num_rows)


def rank_by_value(rows: pa.RecordBatch, first: Cell, name: str) -> Ranks:
    """Ranks a batch by the values of a column: numbers, or dates and times as texts.

    Args:
      rows: list columns of int64, float32 or binary.
      first: where the batch begins.
      name: of the column.

    Raises:
      DataError: a value cannot be ordered, or there is no such column.
    """
    if name not in rows.schema.names:
        raise DataError(
            f"Splits are to be made by the order of {name!r} (data.order_by), but the data has no"
            f" such column; it has {show_names(rows.schema.names)}."
        )
    values = first_values(rows.column(name))
    try:
        keys = ordered_keys(values)
    except pa.ArrowInvalid as error:
        row, value = _first_without_time(values)
        raise DataError(
            f"Column {name!r} is {shown(value)!r} in row {first.row + row} of {first.file}, but"
            " data.order_by needs numbers, or dates and times such as 2026-01-31 or"
            " 2026-01-31T18:30:00Z in every row."
        ) from error
    missing = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return Ranks(_one_group(rows), keys, missing)


def _first_without_time(values: pa.Array) -> tuple[int, bytes]:
    """The place and the value of the first text that is no date or time."""
    for row in range(len(values)):
        try:
            parse_times(values.slice(row, 1))
        except pa.ArrowInvalid:
            return row, values[row].as_py()
    raise AssertionError("all of them are dates or times")
