"""What each column tells of the label: how much worse a forest is where the column is shuffled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer_module.families.supervised.trees.forest import TreeColumn
from trainer_module.features.base import MISSING_SUFFIX, underscored
from trainer_module.problem import Problem
from trainer_module.settings import Task

ROWS = 5_000
"""Held-out examples by which it is measured, over all members."""

REPEATS = 3
"""Shufflings of each column: one may come out well by chance."""

MOST = 100
"""Columns that are shuffled, those by which the trees have gained most: the others tell little."""

LEAST = 1e-7
"""A probability below which all count alike."""

Values = Mapping[str, np.ndarray]


def raw_names(columns: Sequence[TreeColumn]) -> list[str]:
    """For each column the name that people know: of the one that it is a place or a flag of."""
    named = [_name(column) for column in columns]
    known, flag = set(named), underscored(MISSING_SUFFIX)
    bases = [name.removesuffix(flag) for name in named]
    return [base if base in known else name for name, base in zip(named, bases, strict=True)]


def _name(column: TreeColumn) -> str:
    """Returns the feature's; of the vector of very many numbers that of the number."""
    if not column.label or column.label.startswith(f"{column.feature}["):
        return column.feature
    return re.sub(r"\[\d+\]$", "", column.label)


def rank(columns: Sequence[TreeColumn], gains: Mapping[int, float]) -> list[list[int]]:
    """Returns the columns that trees have conditions on, all of one raw column together.

    Args:
      columns: all of them.
      gains: by column what its conditions have taken off the loss.
    """
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(raw_names(columns)):
        groups.setdefault(name, []).append(place)
    total = {name: sum(gains.get(place, 0) for place in groups[name]) for name in groups}
    used = sorted((name for name in groups if total[name] > 0), key=lambda name: -total[name])
    return [groups[name] for name in used[:MOST]]


def losses_of_shuffling(
    model: Any,
    values: Sequence[np.ndarray],
    label: np.ndarray,
    weight: np.ndarray | None,
    groups: Sequence[Sequence[int]],
    problem: Problem,
    random: np.random.Generator,
) -> list[float]:
    """By how much the mean loss of YDF's model grows where the columns of each group are shuffled.

    Args:
      model: of YDF, of any of the tasks.
      values: of each column, [examples]; better none that the model has learnt from.
      label: as the model has learnt it, [examples].
      weight: of each example; None where all count alike.
      groups: of columns that go together.
      problem: what has been learnt.
      random: decides on the order.
    """
    count = len(label)
    several = np.tile(np.arange(count), REPEATS)

    def loss(given: Sequence[np.ndarray], of: np.ndarray) -> float:
        predicted = model.predict({str(place): column for place, column in enumerate(given)})
        weights = None if weight is None else weight[of]
        return float(np.average(_losses(predicted, label[of], problem), weights=weights))

    if weight is not None and not weight.any():
        return [0.0] * len(groups)
    before = loss(values, np.arange(count))
    repeated = [column[several] for column in values]
    grown = []
    for group in groups:
        order = np.concatenate([random.permutation(count) for _ in range(REPEATS)])
        shuffled = list(repeated)
        for place in group:
            shuffled[place] = values[place][order]
        grown.append(loss(shuffled, several) - before)
    return grown


def shares(columns: Sequence[TreeColumn], losses: Counter[int]) -> dict[str, float]:
    """By raw column its share of all that is lost, the largest first; none that costs nothing.

    Args:
      columns: all of them.
      losses: by the first column of each group, over all members.
    """
    names = raw_names(columns)
    costly = [(names[place], lost) for place, lost in losses.most_common() if lost > 0]
    total = sum(lost for _, lost in costly)
    return {name: lost / total for name, lost in costly}


def _losses(predicted: np.ndarray, label: np.ndarray, problem: Problem) -> np.ndarray:
    """Of each example: squares of differences, or what the probability of its class falls short."""
    if problem.task is Task.REGRESSION:
        return np.asarray((predicted - label) ** 2)
    if problem.task is Task.BINARY:
        told = np.where(label == 1, predicted, 1 - predicted)
    else:
        told = predicted[np.arange(len(label)), label]
    return np.asarray(-np.log(np.maximum(told, LEAST)))
