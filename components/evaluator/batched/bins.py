"""Twins of our own combiners that count by bins: calibration, and quantiles of errors."""

from __future__ import annotations

import numpy as np

from components.evaluator.batched.counts import CellTwin
from components.evaluator.batched.rows import Members, ModelRows, NotByBatches, weights_of
from components.evaluator.batched.twins import twin_for
from components.evaluator.own_metrics.calibration import BINS, Bins, TopLabelCombiner, top_labels
from components.evaluator.own_metrics.error_quantiles import CELLS, ErrorCombiner, cells_of


@twin_for(TopLabelCombiner)
class TopLabelBins(CellTwin):
    """Right ones, confidences and examples by the bin of the confidence."""

    width = 3
    cells = BINS

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the rows to their bins."""
        if batch.predictions.shape[1] == 1:
            raise NotByBatches("the most probable class of one output")
        places, values = top_labels(batch.labels, batch.predictions)
        values = values * weights_of(self.combiner, batch)[:, np.newaxis]
        self._add(members.slices * self.cells + places[members.rows], values[members.rows])

    def accumulator(self, number: int) -> Bins:
        """The bins, with those that are empty."""
        filled = np.zeros((BINS, 3))
        places, sums = self.of_slice(number)
        filled[places] = sums
        return filled


@twin_for(ErrorCombiner)
class ErrorCells(CellTwin):
    """Errors by the cells of their sketch."""

    width = 1
    cells = CELLS

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the rows whose error is a number."""
        errors = np.abs(batch.labels.astype(np.float64) - batch.numbers.astype(np.float64))
        known = ~np.isnan(errors)
        places = cells_of(np.where(known, errors, 0.0))
        weights = weights_of(self.combiner, batch)[:, np.newaxis]
        counted = (known & (weights[:, 0] != 0))[members.rows]
        rows, slices = members.rows[counted], members.slices[counted]
        self._add(slices * self.cells + places[rows], weights[rows])

    def accumulator(self, number: int) -> dict[int, float]:
        """Weights by cell."""
        places, sums = self.of_slice(number)
        return dict(zip(places.tolist(), sums[:, 0].tolist(), strict=True))
