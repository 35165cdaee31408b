"""The best few of a search by itself and the config, measured again where none was chosen by.

Of some dozens of candidates one always looks good on a fifth of a small table. So the best few and
the config as it stands learn again from scratch, each with the other fifths held out in turn, and
are compared fifth by fifth.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from components.tuner.records import TrialRecord, TrialState, best_of, ranked
from trainer_module.tuning.plan import PARTS, Objective

Final = tuple[int, int]
"""The number of a trial, and the part of the train split that it is measured on again."""

FINALISTS = 3
"""Beside the config."""

FEWEST_ROUNDS = 2
"""Parts that all are measured on again; one alone does not tell how far off it is."""

TRIALS_PER_FINAL = 2
"""Where the number of trials ends a search: for so many there is one that is measured again."""

SHARE_OF_TIME = 1 / 3
"""Of a search that the time ends."""


def finalists(trials: Sequence[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """The config, which is the first trial, and the best others; none if it has not been done."""
    done = [trial for trial in ranked(trials, objective) if trial.state is TrialState.DONE]
    config = [trial for trial in done if trial.number == 0]
    others = [trial for trial in done if trial.number != 0]
    return [*config, *others[:FINALISTS]] if config and others else []


def plan_finals(
    trials: Sequence[TrialRecord], objective: Objective, seconds: float | None
) -> list[Final]:
    """What is to be measured again, part by part: as many of the best as there is time for.

    Args:
      trials: that have ended.
      objective: what was looked for.
      seconds: that are left, of all processes together; None if the number of trials tells.
    """
    few = finalists(trials, objective)
    while len(few) > 1:
        costs = sum(trial.seconds if seconds is not None else TRIALS_PER_FINAL for trial in few)
        rounds = math.floor((len(trials) if seconds is None else seconds) / max(costs, 1e-9))
        if rounds >= FEWEST_ROUNDS:
            return [(t.number, part) for part in range(1, min(rounds + 1, PARTS)) for t in few]
        few.pop()
    return []


def choose(
    trials: Sequence[TrialRecord], objective: Objective, is_automatic: bool
) -> TrialRecord | None:
    """The trial whose values are trained with; None if none is done.

    Args:
      trials: in the order of their numbers.
      objective: what was looked for.
      is_automatic: whether the first one is the config as it stands. It stays unless another is
          better by more than chance.
    """
    best = best_of(trials, objective)
    first = trials[0] if trials and trials[0].state is TrialState.DONE else None
    if best is None or first is None or not is_automatic:
        return best
    others = [trial for trial in trials[1:] if len(_both(first, trial)) >= FEWEST_ROUNDS]
    if not others:
        return first if _may_be_chance(first, best, objective) else best
    gains = {trial.number: _gains(first, trial, objective) for trial in others}
    winner = max(others, key=lambda trial: statistics.fmean(gains[trial.number]))
    found = gains[winner.number]
    error = statistics.stdev(found) / math.sqrt(len(found))
    return winner if statistics.fmean(found) > error else first


def _both(first: TrialRecord, other: TrialRecord) -> list[int]:
    """The parts that two trials were measured on again."""
    return sorted(first.again.keys() & other.again.keys())


def _gains(first: TrialRecord, other: TrialRecord, objective: Objective) -> list[float]:
    """By how much another is better than the first one, on each part."""
    sign = 1 if objective.higher_is_better else -1
    return [sign * (other.again[part] - first.again[part]) for part in _both(first, other)]


def _may_be_chance(first: TrialRecord, best: TrialRecord, objective: Objective) -> bool:
    """Whether it is within what one measurement on n examples is off by: error / sqrt(n)."""
    if first.value is None or best.value is None or not best.examples:
        return False
    sign, zero = (-1, 1) if objective.higher_is_better else (1, 0)
    errors = [zero + sign * value for value in (first.value, best.value)]
    return errors[0] - errors[1] <= abs(errors[0]) / math.sqrt(best.examples)
