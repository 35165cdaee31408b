"""Permutation importance: the increase of a forest's loss when a column is shuffled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trainer_module.families.supervised.trees.forest import TreeColumn
from trainer_module.features.base import MISSING_SUFFIX, WORDS_SUFFIX, underscored
from trainer_module.problem import Problem
from trainer_module.settings import Task

MAX_EXAMPLES = 5_000
"""The number of held-out examples for the measurement, over all members."""

REPEATS = 3
"""The number of permutations of each column, which reduces the variance."""

MAX_COLUMNS = 100
"""The largest number of columns that are shuffled, in the order of the trees' gain."""

MIN_PROBABILITY = 1e-7
"""The lower limit of probabilities in the loss."""

Predict = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""A function of the columns by number, [examples] each, that returns standardised numbers or the
probabilities of the second class, [examples], or the probabilities of all classes, [examples,
classes]."""


def raw_names(columns: Sequence[TreeColumn]) -> list[str]:
    """Returns the name of the raw column that each column is a place, a missing-value flag or a
    word of.
    """
    named = [_name(column) for column in columns]
    known, flag, words = set(named), underscored(MISSING_SUFFIX), underscored(WORDS_SUFFIX)
    bases = [name.removesuffix(flag).removesuffix(words) for name in named]
    return [base if base in known else name for name, base in zip(named, bases, strict=True)]


def _name(column: TreeColumn) -> str:
    """Returns the feature's name, or for a vector of many numbers the number's name."""
    if not column.label or column.label.startswith(f"{column.feature}["):
        return column.feature
    return re.sub(r"\[\d+\]$", "", column.label)


def rank(columns: Sequence[TreeColumn], gains: Mapping[int, float]) -> list[list[int]]:
    """Returns the columns that trees have conditions on, grouped by raw column.

    Args:
      columns: all columns.
      gains: the reduction of the loss by the conditions on each column.
    """
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(raw_names(columns)):
        groups.setdefault(name, []).append(place)
    total = {name: sum(gains.get(place, 0) for place in groups[name]) for name in groups}
    used = sorted((name for name in groups if total[name] > 0), key=lambda name: -total[name])
    return [groups[name] for name in used[:MAX_COLUMNS]]


def loss_increases(
    predict: Predict,
    values: Sequence[np.ndarray],
    label: np.ndarray,
    weight: np.ndarray | None,
    groups: Sequence[Sequence[int]],
    problem: Problem,
    random: np.random.Generator,
) -> list[float]:
    """Returns the increase of the mean loss of a model for shuffling each group of columns.

    Args:
      predict: the model's prediction.
      values: the values of each column, [examples]; preferably of held-out examples.
      label: the label that the model has learnt, [examples].
      weight: the weight of each example, or None.
      groups: the groups of columns that are shuffled together.
      problem: the features and the label.
      random: the random generator of the permutations.
    """
    count = len(label)
    repeated_rows = np.tile(np.arange(count), REPEATS)

    def loss(inputs: Sequence[np.ndarray], rows: np.ndarray) -> float:
        predicted = predict({str(place): column for place, column in enumerate(inputs)})
        weights = None if weight is None else weight[rows]
        return float(np.average(_losses(predicted, label[rows], problem), weights=weights))

    if weight is not None and not weight.any():
        return [0.0] * len(groups)
    before = loss(values, np.arange(count))
    repeated = [column[repeated_rows] for column in values]
    increases = []
    for group in groups:
        order = np.concatenate([random.permutation(count) for _ in range(REPEATS)])
        shuffled = list(repeated)
        for place in group:
            shuffled[place] = values[place][order]
        increases.append(loss(shuffled, repeated_rows) - before)
    return increases


def shares(columns: Sequence[TreeColumn], losses: Counter[int]) -> dict[str, float]:
    """Returns each raw column's share of the total loss, in descending order, without columns of no
    loss.

    Args:
      columns: all columns.
      losses: the increase of the loss by the first column of each group, over all members.
    """
    names = raw_names(columns)
    increases = [
        (names[place], increase) for place, increase in losses.most_common() if increase > 0
    ]
    total = sum(increase for _, increase in increases)
    return {name: increase / total for name, increase in increases}


def _losses(predicted: np.ndarray, label: np.ndarray, problem: Problem) -> np.ndarray:
    """Returns the loss of each example: the squared error, or the cross-entropy."""
    if problem.task is Task.REGRESSION:
        return np.asarray((predicted - label) ** 2)
    if problem.task is Task.BINARY:
        probability = np.where(label == 1, predicted, 1 - predicted)
    else:
        probability = predicted[np.arange(len(label)), label]
    return np.asarray(-np.log(np.maximum(probability, MIN_PROBABILITY)))
