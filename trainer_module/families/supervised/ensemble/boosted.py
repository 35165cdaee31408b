"""Gradient-boosted trees as a member, with the depth that suits unseen examples best."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_module.families.supervised.ensemble.member import Folds, Member, as_outputs
from trainer_module.families.supervised.trees.growing import GrownForest, TreeExamples, grow
from trainer_module.families.supervised.trees.model import walk_trees
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings

SHALLOW = 3
"""The depth that is tried beside `model.max_depth`, which suits small or additive data."""


@dataclass(frozen=True)
class Boosted:
    """The member, and the trees for the record of the training."""

    member: Member
    grown: GrownForest


def grow_boosted(
    examples: TreeExamples, problem: Problem, settings: TrainerSettings, folds: Folds
) -> Boosted:
    """Grows gradient-boosted trees, a forest for each fold.

    Args:
      examples: the examples of the train split.
      problem: the features and the label.
      settings: the settings of the model and its training.
      folds: the parts that are held out for early stopping.

    Raises:
      TrainingError: YDF cannot learn from the examples.
    """

    def grow_to(depth: int, members: int) -> GrownForest:
        model = settings.model.model_copy(update={"max_depth": depth})
        changed = settings.model_copy(update={"model": model})
        return grow(examples, problem, changed, folds.parts, members, lambda *_: None)

    depth = settings.model.max_depth
    if "max_depth" not in settings.model.model_fields_set and len(folds.held_out(0)):
        first = {tried: grow_to(tried, 1) for tried in (depth, SHALLOW)}
        depth = min(first, key=lambda tried: min(first[tried].history["val_loss"]))
    grown = grow_to(depth, folds.count)

    member = Member(
        lambda inputs: problem.make_activation()(
            walk_trees(problem, grown.forest, inputs, "boosted")
        ),
        as_outputs(problem, grown.unseen),
        (f"boosted trees of depth {depth}",),
    )
    return Boosted(member, grown)
