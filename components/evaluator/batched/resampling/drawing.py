"""What resamples of a slice come to, in the sums of twins: matrix products of draws and parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from components.evaluator.batched.counts import CellTwin
from components.evaluator.batched.means import Determination
from components.evaluator.batched.rows import padded
from components.evaluator.batched.twins import SumTwin
from components.evaluator.own_metrics.classes import Spread

MOST_CELLS = 250
"""Into so many of about equal weight are the cells of a curve joined: its area then moves by less
than 0.002, alike in every resample."""


@dataclass(frozen=True)
class Drawn:
    """The parts of one slice, and how often each resample has drawn them."""

    numbers: np.ndarray
    """[parts], as twins number them."""
    counts: np.ndarray
    """[resamples, parts] float64."""

    def sums(self, twin: SumTwin) -> np.ndarray:
        """What the resamples add up to, [resamples, width]."""
        totals = padded(twin.totals, int(self.numbers.max(initial=-1)) + 1)
        return self.counts @ totals[self.numbers]

    def spread(self, twin: Determination) -> Spread:
        """The spread of the labels of each resample."""
        spreads = twin.spreads.padded(int(self.numbers.max(initial=-1)) + 1)
        weight, mean, squares, errors = (part[self.numbers] for part in spreads.parts)
        # From a mean of all, so that the squares of large labels lose no digits.
        all_rows = weight.sum()
        distance = mean - ((weight * mean).sum() / all_rows if all_rows else 0.0)
        drawn = self.counts @ weight
        moved = self.counts @ (weight * distance)
        spread = self.counts @ (squares + weight * distance**2) - _ratio(moved**2, drawn)
        return Spread(drawn, moved, spread, self.counts @ errors)

    def cells(self, twin: CellTwin) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cells that the parts have used.

        Returns:
          [used] places of the parts in `numbers`, [used] cells, and their totals, [used, width].
        """
        starts = np.searchsorted(twin.places, self.numbers * twin.cells)
        ends = np.searchsorted(twin.places, (self.numbers + 1) * twin.cells)
        counts = ends - starts
        parts = np.repeat(np.arange(len(self.numbers)), counts)
        within = np.arange(len(parts)) - np.repeat(counts.cumsum() - counts, counts)
        places = starts[parts] + within
        return parts, twin.places[places] - self.numbers[parts] * twin.cells, twin.totals[places]

    def table(self, parts: np.ndarray, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Values of parts added up by columns, [resamples, columns].

        Args:
          parts: [used] places in `numbers`.
          columns: [used], from 0.
          values: [used].
        """
        width = int(columns.max(initial=-1)) + 1
        cells = parts * width + columns
        dense = np.bincount(cells, values, len(self.numbers) * width)
        dense = dense.reshape(len(self.numbers), width)
        if len(self.counts) == 1:
            return self.counts @ dense
        # Of many resamples seven digits are enough, and take half the time.
        drawn = self.counts.astype(np.float32) @ dense.astype(np.float32)
        return drawn.astype(np.float64)


def joined_cells(cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Numbers of cells from 0, in their order; neighbours of little weight have the same.

    Args:
      cells: [used], some of which are the same.
      weights: [used], what is in each.
    """
    distinct, where = np.unique(cells, return_inverse=True)
    if len(distinct) <= MOST_CELLS:
        return where
    totals = np.bincount(where, weights)
    before = totals.cumsum() - totals
    places = (before / max(totals.sum(), np.finfo(float).tiny) * MOST_CELLS).astype(np.int64)
    return np.unique(places, return_inverse=True)[1][where]


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0)
