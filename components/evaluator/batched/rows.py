"""What metrics are added up from: the rows of a batch, and the slices that each of them is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np


class NotByBatches(Exception):  # noqa: N818 - it is no error: TFMA goes on
    """A metric cannot be added up by batches; TFMA itself has to compute it."""


Quantiles = np.ndarray
"""[rows, levels] float64; no levels where the model predicts none."""


@dataclass(frozen=True)
class ModelRows:
    """What one model makes of the rows of a batch."""

    labels: np.ndarray
    """[rows], of the dtype that the signature gives."""
    predictions: np.ndarray
    """[rows, outputs] float32."""
    quantiles: Quantiles
    weights: np.ndarray
    """[rows] float64; ones where the data has no weights."""

    @classmethod
    def joined(cls, batches: Sequence[ModelRows]) -> ModelRows:
        """Those of several batches, one after the other."""
        names = [field.name for field in fields(cls)]
        parts = ([getattr(batch, name) for batch in batches] for name in names)
        return cls(*map(np.concatenate, parts))

    @property
    def numbers(self) -> np.ndarray:
        """The predictions of a model of one output, [rows].

        Raises:
          NotByBatches: it has several, of which TFMA makes examples of their own.
        """
        if self.predictions.shape[1] != 1:
            raise NotByBatches(f"the model has {self.predictions.shape[1]} outputs")
        return self.predictions[:, 0]


@dataclass(frozen=True)
class Members:
    """Which rows are in which slices: a row is in all rows, and in one slice of each kind or more.

    Attributes:
      rows: [pairs], the row of each pair.
      slices: [pairs], the number of its slice.
      count: slices that have come up so far, in this batch and those before.
    """

    rows: np.ndarray
    slices: np.ndarray
    count: int

    @classmethod
    def of_all(cls, rows: int) -> Members:
        """Those of so many rows that are all in one slice."""
        return cls(np.arange(rows), np.zeros(rows, np.int64), 1)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Values of rows, [rows] or [rows, columns], added up by slice, in float64."""
        picked = values[self.rows]
        if picked.ndim == 1:
            return np.bincount(self.slices, picked, self.count)
        columns = (np.bincount(self.slices, column, self.count) for column in picked.T)
        return np.stack([*columns], axis=1)
