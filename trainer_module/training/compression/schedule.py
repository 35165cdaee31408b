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
    """Numbers of steps that are done when the masks are made anew; none are made at 0.

    Before the first steps all weights are random, and it means nothing which are the smallest.
    """

    begin: int
    end: int
    """When all of the sparsity is reached."""
    every: int
    """Steps from one look to the next; `end` is one of them."""

    def first_whole_epoch(self, steps_per_epoch: int) -> int:
        """The first epoch, counted from 0, at whose end all of the sparsity is reached."""
        return (self.end - 1) // steps_per_epoch


def plan_steps(prune: PruneSettings, steps: int) -> PruningSteps:
    """When a training prunes.

    Args:
      prune: the schedule, in shares of the training.
      steps: that are planned in all; training may end earlier, but not before `end`.
    """
    begin = min(round(prune.begin * steps), steps - 1)
    last = steps if prune.is_constant else max(begin + 1, round(prune.end * steps))
    every = max(1, min(LONGEST_PAUSE, (last - begin) // FEWEST_LOOKS))
    if prune.is_constant:
        return PruningSteps(begin, begin or every, every)
    return PruningSteps(last - every * ((last - begin) // every), last, every)
