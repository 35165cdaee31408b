"""Random forests and extremely randomised trees: grown by scikit-learn, exported as plain trees.

Breiman, 2001, "Random Forests", doi:10.1023/A:1010933404324; Geurts et al., 2006, "Extremely
randomized trees", doi:10.1007/s10994-006-6226-1.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from trainer_module.data.dealing import Folds
from trainer_module.errors import counted
from trainer_module.families.supervised.trees.estimators import (
    MAX_EXAMPLES,
    as_matrix,
    column_means,
    of_all_classes,
    predict,
    sample,
    select_rows,
)
from trainer_module.families.supervised.trees.forest import Forest
from trainer_module.families.supervised.trees.growing import (
    GrownForest,
    Report,
    TreeExamples,
    measure_importances,
)
from trainer_module.machine import count_cores
from trainer_module.problem import Problem
from trainer_module.settings.model import ForestSettings

MAX_NODES = 600_000
"""The largest number of nodes, at 20 bytes each; more examples grow leaves of more examples."""

MAX_VALUES = 4_000_000
"""The largest number of values in all leaves, at 4 bytes each; with many classes there are fewer
trees, and with very many leaves of more examples."""

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
    trees: int,
    seed: int,
    options: ForestSettings = DEFAULTS,
    report: Report = lambda *_: None,
) -> GrownForest:
    """Grows a forest of averaged trees, whose trees are dealt to the folds.

    Args:
      kind: `random`, or `extra` for extremely randomised trees.
      examples: the examples of the train split.
      problem: the features and the label, without weights of classes.
      folds: the parts that are held out; in an order of time, the forest is then grown on all.
      trees: the number of trees; a limit of the leaves' values may reduce it.
      seed: the seed.
      options: the settings of the forest.
      report: a function that is called after each fold, with the number of finished folds and a
        result.
    """
    means = column_means(examples)
    values, label = as_matrix(examples.values, means), examples.target(problem)
    forest = _empty_forest(examples, problem, means)
    unseen = np.full((len(label), problem.output_units), np.nan)
    of_fold = max(1, _count_trees(problem, len(label), trees) // folds.count)
    learnt = min(len(label), MAX_EXAMPLES)
    predictors = []
    for fold in range(folds.count):
        make = functools.partial(_learner, kind, problem, learnt, of_fold * folds.count, options)
        grown = make(of_fold, seed + fold)
        held_out, train_rows = folds.held_out(fold), sample(folds.train_rows(fold), seed)
        grown.fit(values[train_rows], label[train_rows], select_rows(examples.weight, train_rows))
        predictors.append(functools.partial(_predict_columns, grown, problem, means))
        if len(held_out):
            unseen[held_out] = predict(grown, problem, values[held_out]).reshape(len(held_out), -1)
            if folds.parts.is_ordered:
                rows = sample(np.arange(len(label)), seed)
                grown = make(of_fold, seed + fold).fit(
                    values[rows], label[rows], select_rows(examples.weight, rows)
                )
        forest.gains.update(dict(enumerate(grown.feature_importances_)))
        for tree in grown.estimators_:
            _add(forest, tree.tree_, grown, problem, 1 / (of_fold * folds.count))
        report(fold + 1, counted(of_fold, "tree"))
    return GrownForest(
        forest,
        {"loss": []},
        of_fold,
        False,
        unseen,
        functools.partial(measure_importances, examples, problem, folds, predictors, forest, seed),
    )


def _empty_forest(examples: TreeExamples, problem: Problem, means: np.ndarray) -> Forest:
    bias = np.zeros(problem.output_units, np.float32)
    return Forest(examples.columns, 1, bias, means, np.zeros(0), is_averaged=True)


def _predict_columns(
    model: Any, problem: Problem, means: np.ndarray, columns: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Returns a model's predictions of columns by number, as `Predict` describes them."""
    values = [columns[str(place)] for place in range(len(columns))]
    found = predict(model, problem, as_matrix(values, means))
    return found[:, 0] if found.shape[1:] == (1,) else found


def _count_trees(problem: Problem, examples: int, trees: int) -> int:
    """Returns the number of trees whose leaves hold at most `MAX_VALUES` values."""
    values = problem.output_units * min(examples, MAX_NODES)
    return min(trees, max(10, MAX_VALUES // values))


def _learner(
    kind: str,
    problem: Problem,
    examples: int,
    all_trees: int,
    settings: ForestSettings,
    trees: int,
    seed: int,
) -> Any:
    """Returns a forest of some of all trees, which learns from a number of examples."""
    is_class = problem.task.is_classification
    # A tree of leaves with one example has at most two nodes for each of them.
    smallest = 1 + 2 * examples * all_trees // MAX_NODES // 3
    if problem.output_units > 1:  # Far fewer leaves than examples are pure.
        values = examples * all_trees * problem.output_units
        smallest = max(smallest, 1 + values // (2 * MAX_VALUES))
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
