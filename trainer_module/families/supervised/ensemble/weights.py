"""The weights of an ensemble's members and the calibration of their mean, by unseen examples.

Greedy selection with replacement: Caruana et al., 2004, "Ensemble Selection from Libraries of
Models", doi:10.1145/1015330.1015432. Temperature scaling: Guo et al., 2017, "On Calibration of
Modern Neural Networks", arXiv:1706.04599.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from trainer_module.families.supervised.ensemble.member import (
    MIN_PROBABILITY,
    from_logits,
    to_logits,
)
from trainer_module.problem import Problem
from trainer_module.settings import Task

ROUNDS = 50
"""The number of selections, so that weights are multiples of 1/50 or simpler fractions."""

SHARES = np.linspace(0, 1, 51)
"""The candidates of the network's weight beside the mean of the other members."""

MIN_WEIGHT = 0.02
"""The weight below which a member is left out."""

TEMPERATURES = (0.25, 4.0)
"""The range of temperatures."""

BINS = 15
"""The number of bins of the expected calibration error (Guo et al., 2017)."""


@dataclass(frozen=True)
class Labels:
    """The labels of the train split and the weights of its examples."""

    problem: Problem
    values: np.ndarray
    """The label, [examples]: indices of classes, or numbers."""
    weight: np.ndarray | None = None
    """The weights of the examples, [examples]; None if all count alike."""

    def only(self, rows: np.ndarray) -> Labels:
        """Returns the labels of some rows, without weights if all are 0: rows then count alike."""
        weight = None if self.weight is None else self.weight[rows]
        if weight is not None and not weight.any():
            weight = None
        return Labels(self.problem, self.values[rows], weight)

    def loss(self, predicted: np.ndarray) -> float:
        """Returns the mean squared error, or the mean log loss, of outputs [examples, units].

        Examples that all have a weight of 0, like those of a class of weight 0, count alike.
        """
        weight = None if self.weight is None or not self.weight.any() else self.weight
        return float(np.average(self.losses(predicted), weights=weight))

    def losses(self, predicted: np.ndarray) -> np.ndarray:
        """Returns the squared error, or the log loss, of each example: [examples]."""
        if self.problem.task is Task.REGRESSION:
            return np.asarray((predicted[:, 0] - self.values) ** 2)
        return np.asarray(-np.log(np.clip(self.of_label(predicted), MIN_PROBABILITY, 1)))

    def of_label(self, predicted: np.ndarray) -> np.ndarray:
        """Returns the probability of each example's class, [examples]."""
        classes = self.values.astype(int)
        if self.problem.task is Task.BINARY:
            return np.where(classes == 1, predicted[:, 0], 1 - predicted[:, 0])
        return np.asarray(predicted[np.arange(len(classes)), classes])


def select(unseen: Mapping[str, np.ndarray], labels: Labels, network: str) -> dict[str, float]:
    """Returns the weights of the members, which sum up to 1; members without use are left out.

    The members except for the network are weighted first, by all examples that all of them have
    not seen; then the network and their mean, by the fewer examples that the network has not seen.

    Args:
      unseen: the predictions of unseen examples by member, [examples, units]; NaN for examples that
        the member has seen.
      labels: the labels of all examples.
      network: the name of the member that has fewer unseen examples; it may be absent.
    """
    others = {name: values for name, values in unseen.items() if name != network}
    if not others:
        return {network: 1.0}
    weights = greedy(others, labels)
    if network in unseen:
        share = _share(unseen[network], mean(others, weights), labels)
        weights = {name: weight * (1 - share) for name, weight in weights.items()}
        weights[network] = share
    kept = {name: weight for name, weight in weights.items() if weight >= MIN_WEIGHT}
    return {name: weight / sum(kept.values()) for name, weight in kept.items()}


def greedy(unseen: Mapping[str, np.ndarray], labels: Labels) -> dict[str, float]:
    """Returns the weights that greedy selection with replacement finds; equal without examples."""
    rows = common_rows(unseen)
    if not len(rows) or len(unseen) == 1:
        return dict.fromkeys(unseen, 1 / len(unseen))
    labels = labels.only(rows)
    found = {name: values[rows] for name, values in unseen.items()}
    counts, total = dict.fromkeys(found, 0), np.zeros_like(next(iter(found.values())))
    best, least = dict(counts), np.inf
    for chosen in range(1, ROUNDS + 1):
        losses = {name: labels.loss((total + values) / chosen) for name, values in found.items()}
        name = min(losses, key=lambda one: losses[one])
        counts[name] += 1
        total = total + found[name]
        if losses[name] < least:
            best, least = dict(counts), losses[name]
    return {name: count / sum(best.values()) for name, count in best.items()}


def _share(network: np.ndarray, others: np.ndarray, labels: Labels) -> float:
    """Returns the weight of the network beside the mean of the other members.

    The weight is the nearest to a half whose loss exceeds the smallest loss by at most one standard
    error (the rule of Breiman et al., 1984, "Classification and Regression Trees"), as few unseen
    examples say little.
    """
    rows = common_rows({"network": network, "others": others})
    if not len(rows):
        return 0.5
    labels, first, second = labels.only(rows), network[rows], others[rows]
    losses = [labels.losses(share * first + (1 - share) * second) for share in SHARES]
    means = np.array([np.average(one, weights=labels.weight) for one in losses])
    best = losses[int(means.argmin())]
    errors = np.array([standard_error(one - best, labels.weight) for one in losses])
    candidates = SHARES[means - means.min() <= errors]
    return float(candidates[np.abs(candidates - 0.5).argmin()])


def standard_error(
    values: np.ndarray, weight: np.ndarray | None, units: np.ndarray | None = None
) -> float:
    """Returns the standard error of the weighted mean of values, [examples].

    Args:
      values: the values.
      weight: the weights of the values; None if all count alike.
      units: the number of each value's group; values of different groups are independent. None if
        all values are.
    """
    weight = np.ones(len(values)) if weight is None else weight
    deviations = weight * (values - np.average(values, weights=weight))
    if units is not None:
        deviations = np.bincount(units, deviations)
        # Of few groups the squares underestimate the variance.
        deviations *= np.sqrt(len(deviations) / max(1, len(deviations) - 1))
    return float(np.sqrt(np.sum(deviations**2)) / weight.sum())


def mean(unseen: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """Returns the weighted mean of the members' predictions, [examples, units]."""
    return np.sum([weight * unseen[name] for name, weight in weights.items() if weight], 0)


def common_rows(unseen: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the indices of the examples that no member has seen."""
    return np.flatnonzero(np.all([~np.isnan(values).any(1) for values in unseen.values()], 0))


def unseen_loss(predicted: np.ndarray, labels: Labels) -> float | None:
    """Returns the loss of the predictions of unseen examples, or None if there are none.

    Args:
      predicted: the predictions of all examples, [examples, units]; NaN for seen ones.
      labels: the labels of all examples.
    """
    rows = common_rows({"": predicted})
    return labels.only(rows).loss(predicted[rows]) if len(rows) else None


def temperature(predicted: np.ndarray, labels: Labels) -> float:
    """Returns the temperature that minimises the log loss of probabilities, by unseen examples.

    The result is 1 for a regression, and if the temperature does not lower the log loss of one half
    of the examples when it is found on the other half.

    Args:
      predicted: the probabilities of all examples, [examples, units]; NaN for seen ones.
      labels: the labels of all examples.
    """
    rows = common_rows({"": predicted})
    if labels.problem.task is Task.REGRESSION or len(rows) < 2:
        return 1.0
    halves = [rows[::2], rows[1::2]]
    gain = 0.0
    for fitted, judged in (halves, halves[::-1]):
        value = _best_temperature(predicted[fitted], labels.only(fitted))
        before = labels.only(judged).loss(predicted[judged])
        gain += before - labels.only(judged).loss(
            divide_logits(labels.problem, predicted[judged], value)
        )
    return _best_temperature(predicted[rows], labels.only(rows)) if gain > 0 else 1.0


def _best_temperature(predicted: np.ndarray, labels: Labels) -> float:
    low, high = np.log(TEMPERATURES)
    found = minimize_scalar(
        lambda power: labels.loss(divide_logits(labels.problem, predicted, float(np.exp(power)))),
        bounds=(low, high),
    )
    return float(np.exp(found.x))


def divide_logits(problem: Problem, predicted: np.ndarray, value: float) -> np.ndarray:
    """Returns the probabilities with their logits divided by a temperature, [examples, units]."""
    return from_logits(problem, to_logits(problem, predicted) / value)


def calibration_error(predicted: np.ndarray, labels: Labels) -> float | None:
    """Returns the expected calibration error of the most probable class; None for a regression.

    Args:
      predicted: the probabilities of all examples, [examples, units]; NaN for seen ones.
      labels: the labels of all examples.
    """
    rows = common_rows({"": predicted})
    if labels.problem.task is Task.REGRESSION or not len(rows):
        return None
    values = predicted[rows]
    if labels.problem.task is Task.BINARY:
        values = np.concatenate([1 - values, values], 1)
    surest, chosen = values.max(1), values.argmax(1)
    labels = labels.only(rows)
    weight = np.ones(len(rows)) if labels.weight is None else labels.weight
    is_right = chosen == labels.values
    bins = np.minimum((surest * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weight * (is_right - surest))
    return float(np.abs(gaps).sum() / weight.sum())
