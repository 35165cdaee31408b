"""Grows trees with YDF on the tensors of the train split."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer_module.data.dealing import Folds
from trainer_module.data.input_pipeline import Split
from trainer_module.errors import MemberLimitError, TrainingError, counted
from trainer_module.families.supervised.trees.forest import (
    Forest,
    TreeColumn,
    columns_of,
    split_columns,
)
from trainer_module.families.supervised.trees.importance import (
    MAX_EXAMPLES,
    Predict,
    loss_increases,
    rank,
    shares,
)
from trainer_module.machine import count_cores
from trainer_module.problem import Problem
from trainer_module.settings import EarlyStoppingSettings, Task, TrainerSettings

if TYPE_CHECKING:
    import ydf

PATIENCE = 30
"""The number of consecutive trees without improvement after which growing stops."""

MIN_SAMPLED_EXAMPLES = 25
"""The smallest number of examples from which each tree takes a sample. With few examples a sample
may be empty, and YDF then ends the process without a message; with 25, one of 10**13 is empty."""

MAX_LOGIT = 20.0
"""The limit of initial logits, beyond which probabilities are 0 and 1 in float32."""

MAX_SINGLE_THREAD_EXAMPLES = 10_000
"""The largest number of examples for which one thread grows trees fastest.

Measured on 2 cores: with 455 examples two threads take 12 times as long, with 2,000 up to 2.6
times, with 10,000 from 1.3 to 0.8 times, as waking a thread for each column of each node takes
longer than the search itself.
"""

MAX_EXACT_EXAMPLES = 20_000
"""The largest number of examples for which boosted trees may split a column of numbers between any
two values. With more examples they split it between at most 255 bins, which takes 40 % of the time
for 192,000 examples of 17 columns."""

LABEL, WEIGHT = "label", "weight"
"""YDF's names of these columns; the other columns are numbered."""

Arrays = dict[str, np.ndarray]
Report = Callable[[int, str], None]


@dataclass(frozen=True)
class TreeExamples:
    """The examples that trees are grown from, in order."""

    columns: tuple[TreeColumn, ...]
    values: list[np.ndarray]
    """The values of each column."""
    label: np.ndarray
    """The label, [examples]: indices of classes, or numbers."""
    weight: np.ndarray | None
    bags: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The bags of texts by feature, [examples, terms, 2] float32: pairs of a term's index and its
    TF-IDF, which trees do not read."""

    def to_ydf(self, problem: Problem, rows: np.ndarray) -> Arrays:
        """Returns some of the examples under YDF's column names."""
        named = {str(place): values for place, values in enumerate(self.values)}
        named[LABEL] = self.target(problem)
        if self.weight is not None:
            named[WEIGHT] = self.weight
        return {name: values[rows] for name, values in named.items()}

    def target(self, problem: Problem) -> np.ndarray:
        """Returns the label that trees learn, with standardised numbers."""
        if problem.task is not Task.REGRESSION:
            return self.label
        return problem.standardise(self.label)


@dataclass(frozen=True)
class GrownForest:
    """A grown forest with its losses."""

    forest: Forest
    history: dict[str, list[float]]
    """The mean losses over the forest's members, by the number of trees per output: `loss`, and
    `val_loss` on held-out examples.
    """
    largest_member: int
    """The number of trees per output in the largest member."""
    stopped_early: bool
    """Whether early stopping has ended every member."""
    unseen: np.ndarray
    """The predictions of examples by members that have not seen them, [examples, units] as YDF
    returns them: standardised numbers or probabilities; NaN for other examples."""
    measure_importances: Callable[[], dict[str, float]]
    """A function that computes `importances`."""

    @functools.cached_property
    def importances(self) -> dict[str, float]:
        """The permutation importance of each raw column as a share of the total, in descending
        order. The first access measures the importances.
        """
        return self.measure_importances()


def tree_examples(split: Split) -> TreeExamples | None:
    """Returns the columns and labels of the usable examples, or None if they are not in memory.

    Args:
      split: the train split; pictures and sequences of tokens are left out.
    """
    tensors, problem = split.content.tensors, split.reader.problem
    if tensors is None:
        return None
    columns, label = columns_of(problem), tensors[problem.label]
    column = tensors[problem.weight] if problem.weight else None
    weight = split.weighting.weigh(label, column)
    return TreeExamples(
        columns,
        split_columns(tensors, columns),
        label.numpy().ravel(),
        None if weight is None else weight.numpy(),
        {
            # Unlike `numpy`, `asarray` does not copy, and bags may be large.
            feature.name: np.asarray(tensors[feature.name])
            for feature in problem.features
            if feature.is_bag and feature.name in tensors
        },
    )


def grow(
    examples: TreeExamples,
    problem: Problem,
    settings: TrainerSettings,
    folds: Folds,
    report: Report,
) -> GrownForest:
    """Grows gradient-boosted trees: the mean of members that stop early on different examples.

    In an order of time all members use the latest part for early stopping, and are then grown to
    that size on all examples, as the latest examples are the most informative about the future.

    Args:
      examples: the examples of the train split.
      problem: the features and the label.
      settings: the settings of the model and its training.
      folds: the parts of the examples that are held out, one from each member for early stopping. A
        member without held-out examples grows the largest number of trees.
      report: a function that is called after each member, with the number of finished members and a
        result.

    Raises:
      TrainingError: YDF cannot learn from the examples.
    """
    spec = _data_spec(examples, problem)
    forest = _empty_forest(examples.columns, spec, problem)
    histories, member_sizes, models = [], [], []
    unseen = np.full((len(examples.label), problem.output_units), np.nan)
    for member in range(folds.count):
        held_out, learnt = folds.held_out(member), folds.train_rows(member)
        stops_early = len(held_out) > 0
        learner = functools.partial(_learner, spec, examples, problem, settings, member)
        try:
            model = learner(settings.model.trees, len(learnt), stops_early).train(
                examples.to_ydf(problem, learnt),
                valid=examples.to_ydf(problem, held_out) if stops_early else None,
                verbose=0,
            )
            _check_outputs(model, problem)
            grown, trees = model, model.num_trees() // problem.output_units
            if folds.parts.is_ordered and stops_early and trees:
                rows = np.arange(len(examples.label))
                grown = learner(trees, len(rows), stops_early=False).train(
                    examples.to_ydf(problem, rows), verbose=0
                )
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise TrainingError(
                f"model 'trees': YDF cannot learn from the data: {reason}"
            ) from error
        models.append(model)
        if stops_early:
            predicted = model.predict(examples.to_ydf(problem, held_out))
            unseen[held_out] = predicted.reshape(-1, problem.output_units)
        _add_member(forest, grown, 1 / folds.count)
        histories.append(_history(model, problem))
        member_sizes.append(trees)
        report(member + 1, counted(model.num_trees(), "tree"))
    if problem.class_shift:
        # Members predict probabilities under weighted class frequencies, which the shift corrects.
        forest.bias -= np.asarray(problem.class_shift, np.float32)
    return GrownForest(
        forest,
        _mean(histories),
        max(member_sizes),
        max(member_sizes) < settings.model.trees,
        unseen,
        functools.partial(
            measure_importances,
            examples,
            problem,
            folds,
            [model.predict for model in models],
            forest,
            settings.train.seed,
        ),
    )


def _check_outputs(model: Any, problem: Problem) -> None:
    if len(model.initial_predictions()) != problem.output_units:
        raise MemberLimitError(
            "trees need examples of all classes, but the train split has none of a class, or none "
            f"with a weight; its classes are {', '.join(problem.classes)}."
        )


def measure_importances(
    examples: TreeExamples,
    problem: Problem,
    folds: Folds,
    predictors: Sequence[Predict],
    forest: Forest,
    seed: int,
) -> dict[str, float]:
    """Returns the importances of raw columns, measured on each member's held-out examples, or on
    all.

    Args:
      examples: the examples of the train split.
      problem: the features and the label.
      folds: the parts that are held out from the members.
      predictors: the prediction of each member.
      forest: the forest of all members.
      seed: the seed of the permutations.
    """
    groups = rank(examples.columns, forest.gains)
    label, weight = examples.target(problem), examples.weight
    random, increases = np.random.default_rng(seed), Counter[int]()
    for member, predict in enumerate(predictors):
        held_out = folds.held_out(member)
        rows = held_out if len(held_out) else np.arange(len(label))
        rows = random.permutation(rows)[: MAX_EXAMPLES // len(predictors)]
        of_member = loss_increases(
            predict,
            [values[rows] for values in examples.values],
            label[rows],
            None if weight is None else weight[rows],
            groups,
            problem,
            random,
        )
        increases.update({group[0]: loss for group, loss in zip(groups, of_member, strict=True)})
    return shares(examples.columns, increases)


def _features(examples: TreeExamples) -> list[ydf.Feature]:
    import ydf

    has_bins = len(examples.label) > MAX_EXACT_EXAMPLES
    number = ydf.Semantic.DISCRETIZED_NUMERICAL if has_bins else ydf.Semantic.NUMERICAL
    return [
        ydf.Feature(str(place), ydf.Semantic.CATEGORICAL, is_already_integerized=True)
        if column.codes
        else ydf.Feature(str(place), number)
        for place, column in enumerate(examples.columns)
    ]


def _data_spec(examples: TreeExamples, problem: Problem) -> Any:
    """Returns the data spec of all examples for all members.

    A part may lack a class, or a category whose code would lie beyond the known codes.
    """
    import ydf

    is_regression = problem.task is Task.REGRESSION
    kind = ydf.Semantic.NUMERICAL if is_regression else ydf.Semantic.CATEGORICAL
    others = [ydf.Feature(LABEL, kind)]
    if examples.weight is not None:
        others.append(ydf.Feature(WEIGHT, ydf.Semantic.NUMERICAL))
    return ydf.create_vertical_dataset(
        examples.to_ydf(problem, np.arange(len(examples.label))),
        columns=[*_features(examples), *others],
        label=LABEL,
        # By default the most frequent class would be the first.
        label_classes=None if is_regression else list(range(len(problem.classes))),
    ).data_spec()


def _learner(
    spec: Any,
    examples: TreeExamples,
    problem: Problem,
    settings: TrainerSettings,
    member: int,
    trees: int,
    learnt: int,
    stops_early: bool,
) -> ydf.GradientBoostedTreesLearner:
    import ydf

    stopping = settings.train.early_stopping
    patience = stopping.patience if isinstance(stopping, EarlyStoppingSettings) else PATIENCE
    return ydf.GradientBoostedTreesLearner(
        label=LABEL,
        task=ydf.Task.REGRESSION if problem.task is Task.REGRESSION else ydf.Task.CLASSIFICATION,
        weights=WEIGHT if examples.weight is not None else None,
        features=[str(place) for place in range(len(examples.columns))],
        data_spec=spec,
        num_trees=trees,
        max_depth=settings.model.max_depth,
        shrinkage=settings.model.shrinkage,
        subsample=settings.model.subsample if learnt >= MIN_SAMPLED_EXAMPLES else 1.0,
        num_candidate_attributes_ratio=settings.model.column_share,
        l2_regularization=settings.model.leaf_l2,
        early_stopping="LOSS_INCREASE" if stops_early else "NONE",
        # With a ratio of 0, YDF would not use the given held-out examples either.
        **({} if stops_early else {"validation_ratio": 0.0}),
        early_stopping_num_trees_look_ahead=patience,
        random_seed=settings.train.seed + member,
        num_threads=_count_threads(len(examples.label)),
    )


def _count_threads(examples: int) -> int:
    """Returns the number of threads that grow trees from a number of examples.

    YDF grows other trees with one thread than with several, but the same trees with two or more.
    Therefore larger data uses at least two threads, so that a model does not depend on the machine.
    """
    return 1 if examples <= MAX_SINGLE_THREAD_EXAMPLES else max(2, count_cores())


def _empty_forest(columns: tuple[TreeColumn, ...], spec: Any, problem: Problem) -> Forest:
    specs = spec.columns[: len(columns)]
    means = np.array([column.numerical.mean for column in specs], np.float32)
    known_codes = np.array([column.categorical.number_of_unique_values for column in specs])
    units = problem.output_units
    boundaries = [column.discretized_numerical.boundaries for column in specs]
    return Forest(
        columns, units, np.zeros(units, np.float32), means, known_codes, boundaries=boundaries
    )


def _add_member(forest: Forest, model: Any, share: float) -> None:
    """Adds a member's trees, weighted by the member's share."""
    # The initial logit of a class without examples is infinite.
    bias = np.clip(model.initial_predictions(), -MAX_LOGIT, MAX_LOGIT)
    forest.bias += share * np.asarray(bias, np.float32)
    for tree in model.iter_trees():
        forest.add_tree(tree, share)


def _history(model: Any, problem: Problem) -> dict[str, list[float]]:
    """Returns the losses by the number of trees per output, in the units of networks' losses."""
    logs = model.training_logs()
    losses = {
        "loss": [log.training_evaluation.loss for log in logs],
        "val_loss": [log.evaluation.loss for log in logs if log.evaluation.loss is not None],
    }
    return {name: _to_network_units(values, problem) for name, values in losses.items() if values}


def _to_network_units(losses: Sequence[float], problem: Problem) -> list[float]:
    """Converts YDF's losses: twice the cross-entropy of two classes, or the root of the MSE."""
    match problem.task:
        case Task.BINARY:
            return [loss / 2 for loss in losses]
        case Task.REGRESSION:
            return [(loss * problem.label_deviation) ** 2 for loss in losses]
    return list(losses)


def _mean(histories: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Returns the mean over the members; those that stopped early keep their last value.

    A member without held-out examples has no `val_loss`.
    """
    longest = max(len(history["loss"]) for history in histories)
    found = {
        name: [history[name] for history in histories if name in history]
        for name in ("loss", "val_loss")
    }
    return {
        name: [
            float(np.mean([losses[min(i, len(losses) - 1)] for losses in of_members]))
            for i in range(longest)
        ]
        for name, of_members in found.items()
        if of_members
    }
