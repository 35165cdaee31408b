"""Rows of an evaluation that are not independent: rows of one group, and neighbours in time.

Of 80 patients with 15 rows each, and a label that depends on the patient, intervals are as wide as
of 80 rows. They are therefore computed by units: all rows with one value of `data.split_by`, or
blocks of neighbours by `data.order_by`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from components.example_gen.checks.values import read_order
from components.example_gen.columns.encoded import Cell, list_lengths, show_names
from components.example_gen.splits import hash_rows
from trainer_module.errors import DataError

BLOCKS = 12
"""The number of blocks of time in an evaluation. In simulated AR(1) series of 108 and 1,000 rows,
with a correlation of up to 0.8 between neighbours, noise passes in 1 to 4 % (5 to 22 % if rows
counted as independent), and an equally good model is refused in 2 to 6 %."""


@dataclass(frozen=True)
class Dependence:
    """The column by which rows depend on one another."""

    group_by: str = ""
    """The column whose equal values form a unit; a row without a value is a unit of its own."""
    order_by: str = ""
    """The column of time; neighbours form a unit."""
    ends: tuple[float, ...] = ()
    """The last key of each block of time except the last block."""

    @property
    def column(self) -> str:
        """The column's name; empty where rows are independent."""
        return self.order_by or self.group_by

    def keys(self, rows: pa.RecordBatch) -> np.ndarray:
        """Returns the place in time of each row, [rows]; rows without a value are the oldest.

        Raises:
          DataError: a value cannot be ordered.
        """
        return read_order(rows, Cell("the eval split", 1), self.order_by).keys

    def blocks(self, keys: np.ndarray) -> np.ndarray:
        """Returns the block of time that each key is in, uint64 of shape [rows]."""
        return np.searchsorted(self.ends, keys).astype(np.uint64)

    def units(self, rows: pa.RecordBatch, places: np.ndarray) -> np.ndarray:
        """Returns the unit of each row: of a group a hash, of a block its number.

        Args:
          rows: list columns, with the column.
          places: [rows] uint64, a number that no other row of the evaluation has.

        Returns:
          uint64 of shape [rows].

        Raises:
          DataError: there is no such column, or a value cannot be ordered.
        """
        if not self.column:
            return places
        if self.column not in rows.schema.names:
            raise DataError(
                f"the eval split lacks the column {self.column!r} by which the data was split; its "
                f"columns: {show_names(rows.schema.names)}."
            )
        if self.order_by:
            return self.blocks(self.keys(rows))
        column = rows.select([self.column])
        return np.where(list_lengths(column.column(0)) > 0, hash_rows(column), places)


INDEPENDENT = Dependence()


def block_ends(keys: np.ndarray) -> tuple[float, ...]:
    """Returns the ends of blocks of time with about equally many rows; equal keys stay together.

    Args:
      keys: [rows], in any order.
    """
    ordered = np.sort(keys)
    ends = ordered[np.arange(1, BLOCKS) * len(ordered) // BLOCKS] if len(ordered) else ordered
    return tuple(float(end) for end in np.unique(ends) if end < ordered[-1])


def design_effect(labels: np.ndarray, units: np.ndarray) -> tuple[float, int]:
    """Returns how many times more a score varies by chance than with as many independent rows.

    The formula is for scores that are alike in each unit (Kish, 1965), with the intraclass
    correlation of the labels as the analysis of variance estimates it (Donner and Koval, 1980).

    Args:
      labels: [rows] or, as indicators of classes, [rows, classes].
      units: [rows], numbers from 0.

    Returns:
      The factor of the variance, at least 1, and the number of units.
    """
    columns = labels.reshape(len(labels), -1).astype(np.float64)
    sizes = np.bincount(units)
    count, rows = len(sizes), len(units)
    if count < 2 or count == rows:
        return 1.0, count
    means = np.stack([np.bincount(units, column) / sizes for column in columns.T], axis=1)
    between = (sizes[:, None] * (means - columns.mean(0)) ** 2).sum() / (count - 1)
    within = ((columns - means[units]) ** 2).sum() / (rows - count)
    weighted_size = (sizes**2).sum() / rows
    mean_size = (rows - weighted_size) / (count - 1)
    correlation = (between - within) / max(between + (mean_size - 1) * within, np.finfo(float).tiny)
    return 1 + (weighted_size - 1) * float(np.clip(correlation, 0, 1)), count
