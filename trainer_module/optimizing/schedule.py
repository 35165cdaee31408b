"""The steps of a training at which weights are pruned."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_module.settings.optimize import PruneSettings

LONGEST_PAUSE = 100
"""Steps between two looks at which weights are the smallest, as in TFMOT; to sort them takes time.
"""
FEWEST_LOOKS = 20
"""In a training that is short."""


@dataclass(frozen=True)
class PruningSteps:
    """Steps, counted from 0, after which the masks are made anew."""

    begin: int
    end: int
    """The first one after which all of the sparsity is reached."""
    every: int
    """Steps from one to the next; `end` is one of them."""

    def first_whole_epoch(self, steps_per_epoch: int) -> int:
        """The first epoch, counted from 0, at whose end all of the sparsity is reached."""
        return self.end // steps_per_epoch


def plan_steps(prune: PruneSettings, steps: int) -> PruningSteps:
    """When a training prunes.

    Args:
      prune: the schedule, in shares of the training.
      steps: that are planned in all; training may end earlier, but not before `end`.
    """
    begin = min(round(prune.begin * steps), steps - 1)
    last = begin if prune.is_constant else max(begin, round(prune.end * steps) - 1)
    span = (steps if prune.is_constant else last) - begin
    every = max(1, min(LONGEST_PAUSE, span // FEWEST_LOOKS))
    if not prune.is_constant:
        begin = last - every * (span // every)
    return PruningSteps(begin, last, every)
