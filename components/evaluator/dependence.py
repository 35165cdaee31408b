"""Rows of an evaluation that are not independent: rows of the same group, and neighbours in time.

With 80 patients, 15 rows each, and a label that depends only on the patient, a confidence interval
is as wide as with 80 independent rows. Intervals are therefore computed from units: a unit is all
rows with the same value of `data.split_by`, or a block of neighbours by `data.order_by`.
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
with a correlation of up to 0.8 between neighbours, 1 to 4 % of the models without skill pass (5 to
22 % if rows count as independent), and 2 to 6 % of the equally good models are rejected."""


@dataclass(frozen=True)
class Dependence:
    """The column by which rows depend on one another."""

    group_by: str = ""
    """The column of groups: rows with equal values form a unit. A row without a value is a unit."""
    order_by: str = ""
    """The column of time: a block of neighbours forms a unit."""
    ends: tuple[float, ...] = ()
    """The last key of each block of time except the last block."""

    @property
    def column(self) -> str:
        """The column's name, or an empty string if rows are independent."""
        return self.order_by or self.group_by

    def keys(self, rows: pa.RecordBatch) -> np.ndarray:
        """Returns the sort key of each row in time, [rows]; rows without a value come first.

        Raises:
          DataError: a value cannot be ordered.
        """
        return read_order(rows, Cell("the eval split", 1), self.order_by).keys

    def blocks(self, keys: np.ndarray) -> np.ndarray:
        """Returns the number of the block of time of each key, uint64 of shape [rows]."""
        return np.searchsorted(self.ends, keys).astype(np.uint64)

    def units(self, rows: pa.RecordBatch, row_ids: np.ndarray) -> np.ndarray:
        """Returns the unit of each row: the hash of its group, or the number of its block of time.

        Args:
          row_ids: [rows] uint64, a unique number of each row in the evaluation.

        Returns:
          uint64 of shape [rows].

        Raises:
          DataError: the batch lacks the column, or a value cannot be ordered.
        """
        if not self.column:
            return row_ids
        if self.column not in rows.schema.names:
            raise DataError(
                f"the eval split lacks the column {self.column!r} by which the data was split; the "
                f"columns of the eval split are {show_names(rows.schema.names)}."
            )
        if self.order_by:
            return self.blocks(self.keys(rows))
        column = rows.select([self.column])
        return np.where(list_lengths(column.column(0)) > 0, hash_rows(column), row_ids)


INDEPENDENT = Dependence()
"""The dependence of independent rows."""


def block_ends(keys: np.ndarray) -> tuple[float, ...]:
    """Returns the `ends` of blocks of time with about equally many rows.

    Equal keys are in the same block.

    Args:
      keys: [rows], the sort keys in any order.
    """
    ordered = np.sort(keys)
    ends = ordered[np.arange(1, BLOCKS) * len(ordered) // BLOCKS] if len(ordered) else ordered
    return tuple(float(end) for end in np.unique(ends) if end < ordered[-1])


def design_effect(labels: np.ndarray, units: np.ndarray) -> tuple[float, int]:
    """Returns the design effect: the variance of a score, divided by that with independent rows.

    The formula (Kish, 1965) contains the intraclass correlation of the labels, which is estimated
    by an analysis of variance (Donner and Koval, 1980).

    Args:
      labels: [rows] numbers, or [rows, classes] indicators of classes.
      units: [rows], the number of each row's unit, counted from 0.

    Returns:
      The design effect, at least 1, and the number of units.
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
