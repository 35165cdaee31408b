"""Grows trees by YDF, on tensors of the train split."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer_module.data.dealing import Parts
from trainer_module.errors import TrainingError, counted
from trainer_module.families.supervised.trees.forest import Forest, TreeColumn
from trainer_module.families.supervised.trees.importance import (
    ROWS,
    losses_of_shuffling,
    rank,
    shares,
)
from trainer_module.machine import count_cores
from trainer_module.problem import Problem
from trainer_module.settings import EarlyStoppingSettings, Task, TrainerSettings

if TYPE_CHECKING:
    import ydf

PATIENCE = 30
"""Trees in a row that have to be no better; each is a small step."""

SUBSAMPLE, CANDIDATES = 0.7, 0.5
"""The shares of the examples that each tree, and of the columns that each condition, is chosen by:
trees that see different things make a better sum."""

L2 = 1.0
"""Leaves with few examples say little: as if so many more were there that say nothing."""

FARTHEST = 20.0
"""A logit beyond which probabilities are 0 and 1 as far as float32 goes."""

FEW = 10_000
"""Examples up to which one thread grows trees soonest: others would take longer to be woken for
each column of each node than to look through it. Measured on 2 cores: 455 examples take 12 times
as long by two threads, 2,000 up to 2.6 times, 10,000 from 1.3 to 0.8 times."""

LABEL, WEIGHT = "label", "weight"
"""What YDF knows these columns as; the others are numbered."""

Arrays = dict[str, np.ndarray]
Report = Callable[[int, str], None]


@dataclass(frozen=True)
class TreeExamples:
    """What trees are grown from, in order."""

    columns: tuple[TreeColumn, ...]
    values: list[np.ndarray]
    """Of each column."""
    label: np.ndarray
    """[examples]: indices of classes, or numbers."""
    weight: np.ndarray | None

    def to_ydf(self, problem: Problem, rows: np.ndarray) -> Arrays:
        """Some of the examples under the names that YDF knows the columns by."""
        named = {str(place): values for place, values in enumerate(self.values)}
        named[LABEL] = self.target(problem)
        if self.weight is not None:
            named[WEIGHT] = self.weight
        return {name: values[rows] for name, values in named.items()}

    def target(self, problem: Problem) -> np.ndarray:
        """Returns the label as trees learn it: numbers are standardised."""
        if problem.task is not Task.REGRESSION:
            return self.label
        return (self.label - problem.label_mean) / problem.label_deviation


@dataclass(frozen=True)
class Grown:
    """A forest, and how it came about."""

    forest: Forest
    history: dict[str, list[float]]
    """By how many trees there were for each output: `loss`, and `val_loss` on what was held out;
    means over the members."""
    kept: int
    """Trees for each output that the longest of the members has."""
    has_stopped: bool
    """Whether no member has as many trees as it might."""
    importances: dict[str, float]
    """By raw column its share of what is lost where one column is shuffled, the largest first."""


def grow(
    examples: TreeExamples,
    problem: Problem,
    settings: TrainerSettings,
    parts: Parts,
    members: int,
    report: Report,
) -> Grown:
    """Grows a forest, which is the mean of members that are each stopped by a part of their own.

    In an order of time all are stopped by the latest part, then grown anew to that size from all
    examples: the latest ones tell the most of what is to come.

    Args:
      examples: of the train split.
      problem: what is to be learnt.
      settings: of the model and its training.
      parts: of the examples, one of which is held out from each member, to tell when to stop. A
          member without any grows as many trees as it may.
      members: how many there are.
      report: called after each member, with how many are done and what it came to.

    Raises:
      TrainingError: YDF cannot learn from the examples.
    """
    spec = _describe(examples, problem)
    forest = _empty(examples.columns, spec, problem)
    histories, kept, models = [], [], []
    for member in range(members):
        held_out = _held_out(parts, member)
        stops = bool(held_out.any())
        learner = functools.partial(_learner, spec, examples, problem, settings, member)
        try:
            model = learner(settings.model.trees, stops).train(
                examples.to_ydf(problem, ~held_out),
                valid=examples.to_ydf(problem, held_out) if stops else None,
                verbose=0,
            )
            grown, trees = model, model.num_trees() // problem.output_units
            if parts.is_ordered and stops and trees:
                everything = examples.to_ydf(problem, np.arange(len(examples.label)))
                grown = learner(trees, stops=False).train(everything, verbose=0)
        except ValueError as error:
            said = " ".join(str(error).split())
            raise TrainingError(f"model 'trees': YDF cannot learn from the data: {said}") from error
        models.append(model)
        _join(forest, grown, 1 / members)
        histories.append(_history(model, problem))
        kept.append(trees)
        report(member + 1, counted(model.num_trees(), "tree"))
    if problem.class_shift:
        # They have learnt what probabilities are where classes are as frequent as they count.
        forest.bias -= np.asarray(problem.class_shift, np.float32)
    told = _weigh_columns(examples, problem, parts, models, forest, settings.train.seed)
    return Grown(forest, _mean(histories), max(kept), max(kept) < settings.model.trees, told)


def _weigh_columns(
    examples: TreeExamples,
    problem: Problem,
    parts: Parts,
    models: Sequence[Any],
    forest: Forest,
    seed: int,
) -> dict[str, float]:
    """What the columns tell each member of what it was held out from, or of all if of nothing."""
    groups = rank(examples.columns, forest.gains)
    label, weight = examples.target(problem), examples.weight
    random, lost = np.random.default_rng(seed), Counter[int]()
    for member, model in enumerate(models):
        held_out = np.flatnonzero(_held_out(parts, member))
        rows = held_out if len(held_out) else np.arange(len(label))
        rows = random.permutation(rows)[: ROWS // len(models)]
        found = losses_of_shuffling(
            model,
            [values[rows] for values in examples.values],
            label[rows],
            None if weight is None else weight[rows],
            groups,
            problem,
            random,
        )
        lost.update({group[0]: loss for group, loss in zip(groups, found, strict=True)})
    return shares(examples.columns, lost)


def _held_out(parts: Parts, member: int) -> np.ndarray:
    """Returns whether each example is held out from a member."""
    return parts.held_out(0 if parts.is_ordered else member)


def _features(columns: tuple[TreeColumn, ...]) -> list[ydf.Feature]:
    import ydf

    return [
        ydf.Feature(str(place), ydf.Semantic.CATEGORICAL, is_already_integerized=True)
        if column.codes
        else ydf.Feature(str(place), ydf.Semantic.NUMERICAL)
        for place, column in enumerate(columns)
    ]


def _describe(examples: TreeExamples, problem: Problem) -> Any:
    """What all members know of the columns, those of the others' examples included.

    A part may lack a class, or a category that is read past the end of what is known.
    """
    import ydf

    is_regression = problem.task is Task.REGRESSION
    kind = ydf.Semantic.NUMERICAL if is_regression else ydf.Semantic.CATEGORICAL
    others = [ydf.Feature(LABEL, kind)]
    if examples.weight is not None:
        others.append(ydf.Feature(WEIGHT, ydf.Semantic.NUMERICAL))
    return ydf.create_vertical_dataset(
        examples.to_ydf(problem, np.arange(len(examples.label))),
        columns=[*_features(examples.columns), *others],
        label=LABEL,
        # Otherwise the most frequent class would be the first.
        label_classes=None if is_regression else list(range(len(problem.classes))),
    ).data_spec()


def _learner(
    spec: Any,
    examples: TreeExamples,
    problem: Problem,
    settings: TrainerSettings,
    member: int,
    trees: int,
    stops: bool,
) -> ydf.GradientBoostedTreesLearner:
    import ydf

    given = settings.train.early_stopping
    patience = given.patience if isinstance(given, EarlyStoppingSettings) else PATIENCE
    return ydf.GradientBoostedTreesLearner(
        label=LABEL,
        task=ydf.Task.REGRESSION if problem.task is Task.REGRESSION else ydf.Task.CLASSIFICATION,
        weights=WEIGHT if examples.weight is not None else None,
        features=[str(place) for place in range(len(examples.columns))],
        data_spec=spec,
        num_trees=trees,
        max_depth=settings.model.max_depth,
        shrinkage=settings.model.shrinkage,
        subsample=SUBSAMPLE,
        num_candidate_attributes_ratio=CANDIDATES,
        l2_regularization=L2,
        early_stopping="LOSS_INCREASE" if stops else "NONE",
        # Where 0, YDF does not stop by examples that are given either.
        **({} if stops else {"validation_ratio": 0.0}),
        early_stopping_num_trees_look_ahead=patience,
        random_seed=settings.train.seed + member,
        num_threads=_count_threads(len(examples.label)),
    )


def _count_threads(examples: int) -> int:
    """Returns the threads that grow trees from so many examples.

    YDF grows other trees by one thread than by several, but the same by two as by more: so where
    one thread does not suffice there are two at least, and a model is the same on every machine.
    """
    return 1 if examples <= FEW else max(2, count_cores())


def _empty(columns: tuple[TreeColumn, ...], spec: Any, problem: Problem) -> Forest:
    told = spec.columns[: len(columns)]
    means = np.array([column.numerical.mean for column in told], np.float32)
    known = np.array([column.categorical.number_of_unique_values for column in told])
    units = problem.output_units
    return Forest(columns, units, np.zeros(units, np.float32), means, known)


def _join(forest: Forest, model: Any, share: float) -> None:
    """Adds a member's trees, each of which counts for the member's share."""
    # Without an example of a class its logarithm is that of nothing.
    bias = np.clip(model.initial_predictions(), -FARTHEST, FARTHEST)
    forest.bias += share * np.asarray(bias, np.float32)
    for tree in model.iter_trees():
        forest.add(tree, share)


def _history(model: Any, problem: Problem) -> dict[str, list[float]]:
    """Returns the losses, by the number of trees for each output, in the terms of networks."""
    logs = model.training_logs()
    losses = {
        "loss": [log.training_evaluation.loss for log in logs],
        "val_loss": [log.evaluation.loss for log in logs if log.evaluation.loss is not None],
    }
    return {name: _as_ours(values, problem) for name, values in losses.items() if values}


def _as_ours(losses: Sequence[float], problem: Problem) -> list[float]:
    """YDF has twice the cross-entropy of two classes, and the root of the mean squared error."""
    match problem.task:
        case Task.BINARY:
            return [loss / 2 for loss in losses]
        case Task.REGRESSION:
            return [(loss * problem.label_deviation) ** 2 for loss in losses]
    return list(losses)


def _mean(histories: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Over the members, of which those that stopped early stay at their last value."""
    longest = max(len(history["loss"]) for history in histories)
    return {
        name: [
            float(np.mean([history[name][min(i, len(history[name]) - 1)] for history in histories]))
            for i in range(longest)
        ]
        for name in histories[0]
    }
