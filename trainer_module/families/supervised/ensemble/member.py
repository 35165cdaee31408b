"""A member of an ensemble: its outputs in the model, and its predictions of unseen examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.data.dealing import Parts
from trainer_module.families.supervised.trees.growing import TreeExamples
from trainer_module.problem import Problem
from trainer_module.settings import Task

Build = Callable[[Mapping[str, tf.Tensor]], tf.Tensor]
"""A function that returns a member's outputs, [batch, units], for Keras inputs by name."""


def free_layer_name(problem: Problem, name: str) -> str:
    """Returns the name of a layer that no column has, as Keras names its inputs like columns."""
    taken = {feature.name for feature in problem.features}
    while name in taken:
        name = f"{name}_layer"
    return name


@dataclass(frozen=True)
class Member:
    """A trained member of an ensemble."""

    build: Build
    """A function that adds the member to a Keras model."""
    unseen: np.ndarray
    """The predictions of examples that the member was not trained on, [examples, units] in the
    units of the task's output; NaN for the other examples."""
    notes: tuple[str, ...] = ()
    """Notes for the reader of the summary."""


@dataclass(frozen=True)
class Folds:
    """The parts of the train split that are held out in turn."""

    parts: Parts
    count: int
    """The number of parts that are held out, each from another model."""

    def held_out(self, fold: int) -> np.ndarray:
        """Returns the indices of the examples that a fold holds out; none if nothing can be."""
        return np.flatnonzero(self.parts.held_out(0 if self.parts.is_ordered else fold))

    def train_rows(self, fold: int) -> np.ndarray:
        """Returns the indices of the examples that a fold trains on."""
        held_out = self.held_out(fold)
        if self.parts.is_ordered and len(held_out):
            return np.flatnonzero(self.parts.train_rows(0))
        return np.setdiff1d(np.arange(len(self.parts.part_of)), held_out)


MAX_EXAMPLES = 100_000
"""The largest number of examples that scikit-learn's models are fitted on; a larger split is
sampled."""


def sample(rows: np.ndarray, seed: int) -> np.ndarray:
    """Returns at most `MAX_EXAMPLES` of the rows, in ascending order."""
    if len(rows) <= MAX_EXAMPLES:
        return rows
    chosen = np.random.default_rng(seed).choice(rows, MAX_EXAMPLES, replace=False)
    return np.sort(chosen)


def numeric_matrix(examples: TreeExamples, means: np.ndarray) -> np.ndarray:
    """Returns the columns as float32, [examples, columns], with `means` for missing numbers."""
    values = np.stack([np.asarray(column, np.float32) for column in examples.values], 1)
    return np.where(np.isnan(values), means, values)


def column_means(examples: TreeExamples) -> np.ndarray:
    """Returns the mean of each column's numbers, [columns] float32; 0 for categories."""
    means = [
        0.0 if column.codes or np.isnan(values).all() else np.nanmean(values, dtype=np.float64)
        for column, values in zip(examples.columns, examples.values, strict=True)
    ]
    return np.asarray(means, np.float32)


def select_rows(values: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """Returns some rows of an array, or None for None."""
    return None if values is None else values[rows]


def predict(model: Any, problem: Problem, values: Any) -> np.ndarray:
    """Returns a scikit-learn model's predictions: standardised numbers [rows], or probabilities.

    The probabilities are of the second class, [rows, 1], or of all classes, [rows, classes].
    """
    if not problem.task.is_classification:
        return np.asarray(model.predict(values))
    return of_all_classes(model, problem, model.predict_proba(values))


def of_all_classes(model: Any, problem: Problem, values: np.ndarray) -> np.ndarray:
    """Returns probabilities as the task has them, with 0 for classes that the model does not know.

    Args:
      model: a scikit-learn classifier.
      problem: the task with all classes.
      values: the probabilities of the model's classes, [rows, classes of the model].
    """
    probabilities = np.zeros((len(values), len(problem.classes)))
    probabilities[:, np.asarray(model.classes_, int)] = values
    return probabilities[:, 1:] if problem.task is Task.BINARY else probabilities


def as_outputs(problem: Problem, predicted: np.ndarray) -> np.ndarray:
    """Returns a model's predictions in the units of the task's output, [examples, units] float64.

    Args:
      problem: the task.
      predicted: standardised numbers [examples], probabilities of the second class [examples], or
        of all classes [examples, classes].
    """
    values = np.asarray(predicted, np.float64).reshape(len(predicted), -1)
    if problem.task is Task.REGRESSION:
        return problem.unstandardise(values)
    if not problem.class_shift:
        return values
    shift = np.asarray(problem.class_shift, np.float64)
    logits = to_logits(problem, values) - shift
    return from_logits(problem, logits)


MIN_PROBABILITY = 1e-7
"""The lower limit of probabilities, so that their logits are finite in float32."""


def to_logits(problem: Problem, values: np.ndarray) -> np.ndarray:
    """Returns the logits of probabilities, [examples, units]."""
    values = np.clip(values, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.log(values / (1 - values)) if problem.task is Task.BINARY else np.log(values)


def from_logits(problem: Problem, logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities of logits, [examples, units]."""
    if problem.task is Task.BINARY:
        return 1 / (1 + np.exp(-logits))
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
