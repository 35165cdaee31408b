"""Gradient-boosted trees as a member, with the depth that suits unseen examples best."""

from __future__ import annotations

import itertools
import math

from trainer_module.data.dealing import Folds
from trainer_module.errors import MemberLimitError
from trainer_module.families.supervised.ensemble.member import Member, forest_member
from trainer_module.families.supervised.trees.growing import GrownForest, Report, TreeExamples, grow
from trainer_module.families.supervised.trees.thresholds import move_thresholds
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, TrainerSettings

MAX_EXAMPLES_TO_TRY = 20_000
"""The largest number of examples with which a second depth is tried."""

MANY_CLASSES, MAX_WORK = 50, 1_000_000
"""The number of classes from which examples times classes are limited to `MAX_WORK`, with which one
more tree for each class takes about half a second."""

SHALLOW = 3
"""The depth that is tried beside the default one, which suits small or additive data."""


def grow_boosted(
    examples: TreeExamples,
    problem: Problem,
    settings: TrainerSettings,
    folds: Folds,
    report: Report = lambda *_: None,
) -> Member:
    """Grows gradient-boosted trees, a forest for each fold.

    Args:
      examples: the examples of the train split.
      problem: the features and the label.
      settings: the settings of the model and its training.
      folds: the parts that are held out for early stopping.
      report: a function that is called after each forest, with the number of grown forests and a
        result.

    Raises:
      TrainingError: YDF cannot learn from the examples, or would take too long.
    """
    classes, rows = problem.output_units, len(examples.label)
    if classes >= MANY_CLASSES and classes * rows > MAX_WORK:
        raise MemberLimitError(
            f"boosted trees of {classes:,} classes, each with a tree of its own, would take too "
            f"long for {rows:,} rows"
        )

    numbers = itertools.count(1)

    def grow_to(depth: int, members: int) -> GrownForest:
        model = settings.model.model_copy(update={"max_depth": depth})
        changed = settings.model_copy(update={"model": model})
        parts = Folds(folds.parts, members)
        return grow(examples, problem, changed, parts, lambda _, text: report(next(numbers), text))

    depth, tries_depths = settings.model.max_depth, _tries_depths(settings, examples, folds)
    grown = grow_to(depth, 1 if tries_depths else folds.count)
    if tries_depths:
        shallow = grow_to(SHALLOW, 1)
        if _least_loss(shallow) < _least_loss(grown):
            depth, grown = SHALLOW, shallow
        if folds.count > 1:
            grown = grow_to(depth, folds.count)

    notes = (f"boosted trees of depth {depth}",)
    move_thresholds(grown.forest, examples.values)
    return forest_member(
        problem,
        grown,
        "boosted",
        notes,
        lambda: {
            "importances": grown.importances,
            "history": grown.history,
            "trees": grown.largest_member,
        },
    )


def _least_loss(grown: GrownForest) -> float:
    """Returns the least loss on held-out examples; infinity if they have no weight."""
    return min(grown.history.get("val_loss", [math.inf]))


def _tries_depths(settings: TrainerSettings, examples: TreeExamples, folds: Folds) -> bool:
    """Returns whether held-out examples choose the depth, which the config leaves at its default.

    The settings of a training have a value for every key, so that the value alone is known.
    """
    return (
        settings.model.max_depth == ModelSettings.model_fields["max_depth"].default
        and len(examples.label) <= MAX_EXAMPLES_TO_TRY
        and len(folds.held_out(0)) > 0
    )
