"""A member of an ensemble: its outputs in the model, and its predictions of unseen examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.families.supervised.trees.forest import Forest
from trainer_module.families.supervised.trees.growing import GrownForest
from trainer_module.families.supervised.trees.model import walk_trees
from trainer_module.problem import Problem
from trainer_module.settings import Task

Build = Callable[[Mapping[str, tf.Tensor]], tf.Tensor]
"""A function that returns a member's outputs, [batch, units], for Keras inputs by name."""


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
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The arrays from which `build` can be made again; empty for a network, which has checkpoints.
    """
    measure: Callable[[], dict[str, Any]] = dict
    """A function that returns the member's entries of the record, as JSON."""


def forest_member(
    problem: Problem,
    grown: GrownForest,
    name: str,
    notes: tuple[str, ...] = (),
    measure: Callable[[], dict[str, Any]] = dict,
) -> Member:
    """Returns a forest as a member, whose layer has a name."""
    return Member(
        build_forest(problem, grown.forest, name),
        as_outputs(problem, grown.unseen),
        notes,
        grown.forest.to_arrays(),
        measure,
    )


def build_forest(problem: Problem, forest: Forest, name: str) -> Build:
    """Returns the function that adds a forest, whose layer has a name, to a Keras model."""
    return lambda inputs: walk_trees(problem, forest, inputs, name)


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
