"""Inputs and outputs of scikit-learn's models: columns as a matrix, outputs of all classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer_module.families.supervised.trees.growing import TreeExamples
from trainer_module.problem import Problem
from trainer_module.settings import Task

MAX_EXAMPLES = 100_000
"""The largest number of examples that scikit-learn's models are fitted on; a larger split is
sampled."""


def sample(rows: np.ndarray, seed: int) -> np.ndarray:
    """Returns at most `MAX_EXAMPLES` of the rows, in ascending order."""
    if len(rows) <= MAX_EXAMPLES:
        return rows
    chosen = np.random.default_rng(seed).choice(rows, MAX_EXAMPLES, replace=False)
    return np.sort(chosen)


def as_matrix(columns: Sequence[np.ndarray], means: np.ndarray) -> np.ndarray:
    """Returns the columns as float32, [examples, columns], with `means` for missing numbers."""
    values = np.stack([np.asarray(column, np.float32) for column in columns], 1)
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
