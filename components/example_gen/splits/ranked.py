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

from components.example_gen.checks.columns import show_names
from components.example_gen.checks.whole import TRAIN_SPLIT
from components.example_gen.columns.encoded import Cell, first_values, shown, single_values
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import counted
from components.example_gen.splits.hashed import hash_rows
from trainer_module.errors import DataError

_ZONED_TIME = r"[T ]\d{2}:?\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)$"
_NANOSECONDS = r"(\.\d{6})\d+"


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
        ends = _ends_between_values(keys[by_group], parts_of_whole)[None, :]
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


def _ends_between_values(keys: np.ndarray, parts_of_whole: np.ndarray) -> np.ndarray:
    """How many of the sorted keys are in a split or one before it, of shape [splits - 1].

    The nearest place to a share at which the key changes; no split is left without a key if there
    are enough of them.
    """
    changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    splits = len(parts_of_whole)
    if len(changes) < splits:
        return np.append(changes, np.full(splits - len(changes), len(keys)))
    middles = (changes[:-1] + changes[1:]) / 2
    nearest = np.searchsorted(middles, parts_of_whole * len(keys))
    for split in range(1, splits):
        nearest[split] = max(nearest[split], nearest[split - 1] + 1)
    latest = len(changes) - splits + np.arange(splits)
    return changes[np.minimum(nearest, latest)]


def _classes(rows: pa.RecordBatch, label: str) -> pa.Array:
    """The label of each row as binary, `` where there is none."""
    if label not in rows.schema.names:
        return _one_group(rows)
    values = first_values(rows.column(label))
    if not _is_text(values):
        values = values.cast(pa.string())
    return pc.fill_null(values.cast(pa.binary()), b"")


def _is_text(values: pa.Array) -> bool:
    return pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)


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
    if pa.types.is_null(values.type):
        values = values.cast(pa.int64())
    if _is_text(values):
        values = _parse_times(values, first, name)
    missing = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    oldest = np.iinfo(np.int64).min if pa.types.is_integer(values.type) else -np.inf
    keys = np.where(missing, oldest, pc.fill_null(values, 0).to_numpy())
    return Ranks(_one_group(rows), keys, missing)


def _parse_times(values: pa.Array, first: Cell, name: str) -> pa.Array:
    """Dates and times as microseconds since 1970, int64; without a zone they are of UTC.

    Raises:
      DataError: one is none.
    """
    try:
        texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
        texts = pc.replace_substring_regex(texts, _NANOSECONDS, r"\1")
        zoned = pc.fill_null(pc.match_substring_regex(texts, _ZONED_TIME), False)
        # Arrow takes a column of times with zones or one without.
        times = [
            pc.if_else(mask, texts, None).cast(pa.timestamp("us", zone)).cast(pa.int64())
            for mask, zone in ((zoned, "UTC"), (pc.invert(zoned), None))
        ]
        return pc.coalesce(*times)
    except pa.ArrowInvalid as error:
        if len(values) > 1:
            # Each by itself, to find the first.
            for row in range(len(values)):
                _parse_times(values.slice(row, 1), Cell(first.file, first.row + row), name)
        value = shown(values[0].as_py())
        raise DataError(
            f"Column {name!r} is {value!r} in row {first.row} of {first.file}, but data.order_by"
            " needs numbers, or dates and times such as 2026-01-31 or 2026-01-31T18:30:00Z in"
            " every row."
        ) from error
