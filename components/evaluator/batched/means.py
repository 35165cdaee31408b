"""Twins of what TFMA, Keras and we make means of: a value per row, added up with its weight."""

from __future__ import annotations

from typing import Any

import numpy as np

from components.compat import tfma
from components.evaluator.batched.rows import Members, ModelRows, weights_of
from components.evaluator.batched.twins import Sums, SumTwin, Twin, twin_for
from components.evaluator.own_metrics.classes import Spread, _DeterminationCombiner
from components.evaluator.own_metrics.numbers import _MeanCombiner


def weighed(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values, [rows], times their weights, beside the weights: [rows, 2] float64."""
    return np.stack([values.astype(np.float64) * weights, weights], axis=1)


@twin_for(tfma.EXAMPLE_COUNT)
class ExampleCount(SumTwin):
    """How many examples there are, or what they weigh."""

    width = 1

    def values(self, batch: ModelRows) -> np.ndarray:
        """The weight of each."""
        return weights_of(self.combiner, batch)[:, np.newaxis]

    def accumulator(self, number: int) -> float:
        """A number."""
        return float(self.totals[number, 0])


_ERRORS = {
    tfma.ABSOLUTE_ERROR: lambda truth, said: np.abs(truth - said),
    tfma.SQUARED_ERROR: lambda truth, said: np.abs(truth - said).astype(np.float64) ** 2,
    # Of a label of 0 there is no share: NaN, which counts for nothing.
    tfma.PERCENTAGE_ERROR: lambda truth, said: (
        100.0 * np.abs((truth - said) / np.where(truth == 0, np.nan, truth)).astype(np.float64)
    ),
}


@twin_for(tfma.REGRESSION_ERRORS)
class RegressionError(SumTwin):
    """The mean of an error of numbers; rows where it is NaN count for nothing, as TFMA has it."""

    width = 2

    def values(self, batch: ModelRows) -> np.ndarray:
        """The error of each row."""
        errors = _ERRORS[tfma.name_of(type(self.combiner))](batch.labels, batch.numbers)
        known = ~np.isnan(errors)
        weights = np.where(known, weights_of(self.combiner, batch), 0.0)
        return weighed(np.where(known, errors, 0.0), weights)

    def accumulator(self, number: int) -> Any:
        """TFMA's sums."""
        filled = self.combiner.create_accumulator()
        filled.total_regression_error, filled.total_example_weights = self.totals[number].tolist()
        return filled


@twin_for(tfma.BINARY_CROSS_ENTROPY)
class BinaryCrossEntropy(SumTwin):
    """The mean of what the probability of the true class lacks."""

    width = 2

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """Of probabilities, without smoothing."""
        return super().suits(combiner) and not tfma.has_logits_or_smoothing(combiner)

    def values(self, batch: ModelRows) -> np.ndarray:
        """The cross-entropy of each row."""
        truth, said = batch.labels, batch.numbers
        entropy = -(truth * np.log(said)) - (1 - truth) * np.log(1 - said)
        return weighed(entropy, weights_of(self.combiner, batch))

    def accumulator(self, number: int) -> Any:
        """TFMA's sums."""
        filled = self.combiner.create_accumulator()
        filled.total_cross_entropy, filled.total_example_weights = self.totals[number].tolist()
        return filled


@twin_for(_MeanCombiner)
class OwnMean(SumTwin):
    """The mean of what a metric of ours says of each row."""

    width = 2

    def values(self, batch: ModelRows) -> np.ndarray:
        """What the metric says."""
        labels = batch.labels.astype(np.float64)
        values = self.combiner.metric.of_rows(labels, batch.predictions, batch.quantiles)
        return weighed(values, weights_of(self.combiner, batch))

    def accumulator(self, number: int) -> tuple[float, float]:
        """The weights, and the weighted values."""
        total, weight = self.totals[number].tolist()
        return weight, total


@twin_for(tfma.SQUARED_CORRELATION)
class SquaredCorrelation(SumTwin):
    """Sums of labels, of numbers, of their squares and of their products."""

    width = 6

    def values(self, batch: ModelRows) -> np.ndarray:
        """In the order of the fields of TFMA's accumulator, below."""
        truth = batch.labels.astype(np.float64)
        said = batch.numbers.astype(np.float64)
        parts = [truth, said, truth**2, said**2, truth * said, np.ones(len(truth))]
        return np.stack(parts, axis=1) * weights_of(self.combiner, batch)[:, np.newaxis]

    def accumulator(self, number: int) -> Any:
        """TFMA's sums."""
        filled = self.combiner.create_accumulator()
        (
            filled.total_weighted_labels,
            filled.total_weighted_predictions,
            filled.total_weighted_squared_labels,
            filled.total_weighted_squared_predictions,
            filled.total_weighted_labels_times_predictions,
            filled.total_weighted_examples,
        ) = self.totals[number].tolist()
        return filled


@twin_for(_DeterminationCombiner)
class Determination(Twin):
    """The spread of the labels, and the squared errors, for R²."""

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        self.spreads = Spread.empty(0)

    @property
    def sums(self) -> Sums:
        """The parts of the spreads."""
        return self.spreads.parts

    @sums.setter
    def sums(self, sums: Sums) -> None:
        self.spreads = Spread(*sums)

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the spread of the batch, by slice."""
        truth, weights = batch.labels.astype(np.float64), weights_of(self.combiner, batch)
        sums = members.total(weighed(truth, weights))
        weight = sums[:, 1]
        mean = np.divide(sums[:, 0], weight, out=np.zeros(len(weight)), where=weight != 0)
        picked = weights[members.rows]
        squares = picked * (truth[members.rows] - mean[members.slices]) ** 2
        error = weights * (truth - batch.numbers.astype(np.float64)) ** 2
        found = Spread(
            weight,
            mean,
            np.bincount(members.slices, squares, members.count),
            members.total(error),
        )
        self.spreads = self.spreads.padded(members.count).add(found)

    def merge(self, other: Determination, places: np.ndarray, count: int) -> None:
        """Adds the spreads of the other one."""
        self.spreads = self.spreads.padded(count).add(other.spreads.at(places, count))

    def accumulator(self, number: int) -> Spread:
        """The spread of one slice."""
        return self.spreads.at_one(number)
