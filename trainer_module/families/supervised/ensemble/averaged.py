"""Random forests and extremely randomised trees: grown by scikit-learn, exported as plain trees.

Breiman, 2001, "Random Forests", doi:10.1023/A:1010933404324; Geurts et al., 2006, "Extremely
randomized trees", doi:10.1007/s10994-006-6226-1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from trainer_module.families.supervised.ensemble.member import (
    MAX_EXAMPLES,
    Build,
    Folds,
    Member,
    as_outputs,
    column_means,
    numeric_matrix,
    of_all_classes,
    predict,
    sample,
    select_rows,
)
from trainer_module.families.supervised.ensemble.model import to_output
from trainer_module.families.supervised.trees.forest import Forest
from trainer_module.families.supervised.trees.growing import TreeExamples
from trainer_module.families.supervised.trees.model import walk_trees
from trainer_module.machine import count_cores
from trainer_module.problem import Problem
from trainer_module.settings.model import ForestSettings

TREES = 300
"""The number of trees, over all folds."""

MAX_NODES = 600_000
"""The largest number of nodes, at 20 bytes each; more examples grow leaves of more examples."""

MAX_VALUES = 4_000_000
"""The largest number of values in all leaves, at 4 bytes each; with many classes there are fewer
trees."""

DEFAULTS = ForestSettings()
"""The settings of a forest in a config without any."""

FEATURES_OF_NUMBERS = 0.5
"""The share of the columns that a random forest of a regression tries at each node. On eight tables
it is better than scikit-learn's default, all columns, on seven, and takes half of the time."""

PARALLEL_FROM = 2_000
"""The number of examples from which several threads grow trees faster than one."""

_KINDS = {
    ("random", True): RandomForestClassifier,
    ("random", False): RandomForestRegressor,
    ("extra", True): ExtraTreesClassifier,
    ("extra", False): ExtraTreesRegressor,
}


def grow_averaged(
    kind: str,
    examples: TreeExamples,
    problem: Problem,
    folds: Folds,
    seed: int,
    options: ForestSettings = DEFAULTS,
) -> Member:
    """Grows forests whose trees are averaged, one forest for each fold.

    Args:
      kind: `random`, or `extra` for extremely randomised trees.
      examples: the examples of the train split.
      problem: the features and the label.
      folds: the parts that are held out; in an order of time, the forest is then grown on all.
      seed: the seed.
      options: the settings of the forest.
    """
    means = column_means(examples)
    values, label = numeric_matrix(examples, means), examples.target(problem)
    forest = Forest(
        examples.columns, 1, np.zeros(problem.output_units, np.float32), means, np.zeros(0)
    )
    unseen = np.full((len(label), problem.output_units), np.nan)
    trees = max(1, _count_trees(problem, len(label)) // folds.count)
    learnt = min(len(label), MAX_EXAMPLES)
    for fold in range(folds.count):
        grown = _learner(kind, problem, learnt, trees, seed + fold, options)
        held_out, train_rows = folds.held_out(fold), sample(folds.train_rows(fold), seed)
        grown.fit(values[train_rows], label[train_rows], select_rows(examples.weight, train_rows))
        if len(held_out):
            unseen[held_out] = as_outputs(problem, predict(grown, problem, values[held_out]))
            if folds.parts.is_ordered:
                rows = sample(np.arange(len(label)), seed)
                grown.fit(values[rows], label[rows], select_rows(examples.weight, rows))
        for tree in grown.estimators_:
            _add(forest, tree.tree_, grown, problem, 1 / (trees * folds.count))
    return Member(build_averaged(kind, problem, forest), unseen, arrays=forest.to_arrays())


def build_averaged(kind: str, problem: Problem, forest: Forest) -> Build:
    """Returns the function that adds a forest of a kind to a Keras model."""
    return lambda inputs: to_output(
        problem, walk_trees(problem, forest, inputs, problem.layer_name(kind))
    )


def _count_trees(problem: Problem, examples: int) -> int:
    """Returns the number of trees whose leaves hold at most `MAX_VALUES` values."""
    return min(TREES, max(10, MAX_VALUES // (problem.output_units * min(examples, MAX_NODES))))


def _learner(
    kind: str, problem: Problem, examples: int, trees: int, seed: int, settings: ForestSettings
) -> Any:
    is_class = problem.task.is_classification
    # A tree of leaves with one example has at most two nodes for each of them.
    smallest = 1 + 2 * examples * _count_trees(problem, examples) // MAX_NODES // 3
    threads = count_cores() if examples >= PARALLEL_FROM else 1
    options: dict[str, Any] = {"random_state": seed, "n_jobs": threads}
    if settings.column_share is not None:
        options["max_features"] = settings.column_share
    elif kind == "random" and not is_class:
        options["max_features"] = FEATURES_OF_NUMBERS
    fewest = max(smallest, settings.min_examples)
    return _KINDS[kind, is_class](trees, min_samples_leaf=fewest, **options)


def _add(forest: Forest, tree: Any, grown: Any, problem: Problem, share: float) -> None:
    """Adds a tree of scikit-learn, whose nodes are renumbered so that siblings are neighbours."""
    left, right = tree.children_left, tree.children_right
    is_split = left >= 0
    number = np.zeros(len(left), int)
    firsts = 1 + 2 * np.arange(np.count_nonzero(is_split))
    number[left[is_split]], number[right[is_split]] = firsts, firsts + 1
    order = np.argsort(number)
    first_child = np.arange(len(left))
    first_child[number[is_split]] = firsts
    values = tree.value[:, 0, :]
    if problem.task.is_classification:
        values = of_all_classes(grown, problem, values / values.sum(1, keepdims=True))
    column = np.where(is_split, tree.feature, 0)
    threshold = np.where(is_split, _first_above(tree.threshold), np.nan).astype(np.float32)
    forest.add_nodes(
        first_child, column[order], threshold[order], share * values[order], int(tree.max_depth)
    )


def _first_above(thresholds: np.ndarray) -> np.ndarray:
    """Returns the smallest float32 above each float64: a condition holds above its threshold."""
    nearest = thresholds.astype(np.float32)
    above = np.nextafter(nearest, np.float32(np.inf))
    return np.where(nearest > thresholds, nearest, above)
