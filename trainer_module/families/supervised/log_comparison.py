"""Compares quick models of the label with those of its logarithm on unseen examples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from trainer_module.data.dealing import Parts, count_units, divide_examples
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.data.order import spread_rows
from trainer_module.families.supervised.ensemble.linear import encode
from trainer_module.families.supervised.tasks.numbers import bias_factor
from trainer_module.families.supervised.trees.estimators import (
    as_matrix,
    column_means,
    select_rows,
)
from trainer_module.families.supervised.trees.forest import columns_of
from trainer_module.families.supervised.trees.growing import TreeExamples, tree_examples
from trainer_module.problem import Problem

MIN_EXAMPLES, MAX_EXAMPLES, MAX_VALUES = 100, 4_000, 200_000
"""The least number of examples that are compared, the largest number, and the largest number of
examples times columns, which takes about a second."""

PARTS = 3
"""The number of parts of the examples, of which each is held out once."""

STANDARD_ERRORS, MIN_GAIN = 2.0, 0.02
"""The gain of the logarithm in standard errors, and as a share of the loss, that is clear."""


@dataclass(frozen=True)
class Gain:
    """The gain of logarithms: the decrease of a loss on unseen examples."""

    share: float
    """The gain as a share of the loss without logarithms."""
    errors: float
    """The gain in standard errors."""

    @property
    def is_clear(self) -> bool:
        """Whether the gain is beyond chance and large enough to matter."""
        return self.share >= MIN_GAIN and self.errors >= STANDARD_ERRORS


def compare(data: TrainingData, logarithms: Problem, learns_mean: bool) -> dict[str, Gain]:
    """Returns the gain of logarithms in the squared and in the absolute error.

    Args:
      data: the data, with the problem of learning the label itself.
      logarithms: the problem of learning logarithms.
      learns_mean: whether predictions are means of labels; for medians, whose squared error is not
        minimal, only the absolute error counts.

    Returns:
      The gains by the name of the error; none if there are too few examples, in all or outside of
      the largest group, or no columns of numbers or categories.
    """
    columns = columns_of(data.problem)
    split = _sample(data.train, len(columns)) if columns else None
    if split is None:
        return {}
    examples = tree_examples(split)
    assert examples is not None  # noqa: S101 - the sample is in memory
    parts = divide_examples(split.content, PARTS, data.train.shuffle_seed)
    with threadpool_limits(1):  # Threads would take longer for so few examples.
        plain, log = (
            np.abs(_predict_unseen(examples, problem, parts, learns_mean) - examples.label)
            for problem in (data.problem, logarithms)
        )
    if np.count_nonzero(~np.isnan(plain)) < MIN_EXAMPLES // PARTS:
        return {}
    weight = np.ones(len(plain)) if examples.weight is None else examples.weight
    gains = {"squared error": _gain(plain**2, log**2, weight)} if learns_mean else {}
    return gains | {"absolute error": _gain(plain, log, weight)}


def _gain(plain: np.ndarray, log: np.ndarray, weight: np.ndarray) -> Gain:
    """Returns the gain in a loss, [examples]; NaN for examples that no model has left unseen."""
    rows = ~np.isnan(plain)
    plain, gains, weight = plain[rows], (plain - log)[rows], weight[rows] / weight[rows].sum()
    mean = float(weight @ gains)
    error = math.sqrt(float(np.sum((weight * (gains - mean)) ** 2)))
    loss = float(weight @ plain)
    return Gain(mean / loss if loss else 0.0, mean / error if error else 0.0)


def _sample(train: Split, columns: int) -> Split | None:
    """Returns a sample of the train split in memory, or None if it would be too small."""
    content = train.content
    rows = spread_rows(content.examples, min(MAX_EXAMPLES, MAX_VALUES // columns))
    chosen = np.zeros(len(content.usable), bool)
    chosen[np.flatnonzero(content.usable)[rows]] = True
    sampled = replace(content, tensors=None).select(chosen)
    if len(rows) < MIN_EXAMPLES or count_units(sampled) < PARTS:
        return None
    reader, problem = train.reader, train.reader.problem
    needed = {column.feature for column in columns_of(problem)} | {problem.label, problem.weight}
    spec = {name: reader.spec[name] for name in reader.spec if name in needed}
    with tf.device("CPU:0"):  # A GPU's memory might be too small for all examples.
        sampled.tensors = (
            {name: tf.gather(content.tensors[name], rows) for name in spec}
            if content.tensors is not None
            else replace(reader, spec=spec).select(chosen).read_in_graph(len(rows))
        )
    return replace(train, content=sampled)


def _predict_unseen(
    examples: TreeExamples, problem: Problem, parts: Parts, learns_mean: bool
) -> np.ndarray:
    """Returns the mean prediction of the quick models, [examples]; NaN for seen examples."""
    label, found = problem.standardise(examples.label), []
    means = column_means(examples)
    values, (encoded, _) = as_matrix(examples.values, means), encode(examples, means)
    for make, matrix in ((_boosted, values), (Ridge, encoded)):
        unseen = np.full(len(label), np.nan)
        for part in range(1 if parts.is_ordered else PARTS):
            train, held_out = parts.train_rows(part), parts.held_out(part)
            # A group with most of the examples leaves too few to learn from.
            if train.sum() >= len(label) / 2 and held_out.any():
                model = make().fit(matrix[train], label[train], select_rows(examples.weight, train))
                unseen[held_out] = problem.unstandardise(model.predict(matrix[held_out]))
        if problem.log_range and learns_mean:
            unseen *= bias_factor(examples.label, unseen, examples.weight)
        found.append(unseen)
    return np.asarray(np.mean(found, 0))


def _boosted() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(
        max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False, random_state=0
    )
