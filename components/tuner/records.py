"""What is known of the trials of a search, which are the best, and what is left for people.

Of some dozens of candidates one always looks good on a fifth of a small table. So the best few and
the config as it stands learn again from scratch, each with the other fifths held out in turn, and
are compared fifth by fifth.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from components.copying import read_text, write_text
from trainer_module.tuning.plan import PARTS, Objective

HOPELESS = 5
"""So many trials that have failed are enough to say that all will, where none has not."""


class TrialState(StrEnum):
    """How far a trial has come."""

    RUNNING = "running"
    """Under way, or interrupted: it is gone on with."""
    DONE = "done"
    PRUNED = "pruned"
    """Given up, as it fell behind."""
    FAILED = "failed"
    STOPPED = "stopped"
    """The time of the search was over."""


class TrialRecord(BaseModel):
    """One trial."""

    number: int
    """Counted from 0."""
    state: TrialState
    values: dict[str, Any] = {}
    """What it had in place of what the config says, by key."""
    value: float | None = None
    """Of the objective; of one that was given up the last that it came to."""
    examples: int = 0
    """That it was measured on."""
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0
    metrics: dict[str, float] = {}
    cause: str = ""
    """Why it failed."""
    again: dict[int, float] = {}
    """Of one of the best few the objective by the part of the train split that it was measured on
    again, counted from 1: part 0 is that of all trials."""
    seconds_again: float = 0.0
    """That this has taken."""

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to do for it."""
        return self.state is not TrialState.RUNNING


def best_of(trials: Iterable[TrialRecord], objective: Objective) -> TrialRecord | None:
    """Returns the best of those that are done, the earliest of equal ones; None if none is."""
    best: TrialRecord | None = None
    for trial in trials:
        if trial.state is not TrialState.DONE or trial.value is None:
            continue
        if best is None or best.value is None or objective.is_better(trial.value, best.value):
            best = trial
    return best


def is_hopeless(trials: Iterable[TrialRecord]) -> bool:
    """Returns whether others would fail as well: of those that have ended all have, and they
    are enough.
    """
    ended = [trial for trial in trials if trial.has_ended]
    return len(ended) >= HOPELESS and all(trial.cause for trial in ended)


def ranked(trials: Iterable[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """Returns the best first; those that were given up, failed or were stopped come last."""
    sign = -1.0 if objective.higher_is_better else 1.0

    def rank(trial: TrialRecord) -> tuple[bool, bool, float, int]:
        value = 0.0 if trial.value is None else sign * trial.value
        return trial.state is not TrialState.DONE, trial.value is None, value, trial.number

    return sorted(trials, key=rank)


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
    """Returns the config, which is the first trial, and the best others; none if it has not
    been done.
    """
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
    """Returns the trial whose values are trained with; None if none is done.

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
    """Returns the parts that two trials were measured on again."""
    return sorted(first.again.keys() & other.again.keys())


def _gains(first: TrialRecord, other: TrialRecord, objective: Objective) -> list[float]:
    """By how much another is better than the first one, on each part."""
    sign = 1 if objective.higher_is_better else -1
    return [sign * (other.again[part] - first.again[part]) for part in _both(first, other)]


def _may_be_chance(first: TrialRecord, best: TrialRecord, objective: Objective) -> bool:
    """Returns whether it is within what one measurement on n examples is off by: error /
    sqrt(n).
    """
    if first.value is None or best.value is None or not best.examples:
        return False
    sign, zero = (-1, 1) if objective.higher_is_better else (1, 0)
    errors = [zero + sign * value for value in (first.value, best.value)]
    return errors[0] - errors[1] <= abs(errors[0]) / math.sqrt(best.examples)


LEADERBOARD_FILE = "leaderboard.json"
"""In the artifact of the results."""


def summarize(
    trials: Sequence[TrialRecord], objective: Objective, is_automatic: bool
) -> dict[str, Any]:
    """Returns the leaderboard as JSON: which trial is trained with, and all of them, the best
    first.
    """
    best = choose(trials, objective, is_automatic)
    return {
        "objective": objective.name,
        "higher_is_better": objective.higher_is_better,
        "best": None if best is None else best.number,
        "values": {} if best is None else best.values,
        "trials": [
            trial.model_dump(mode="json", exclude_defaults=True)
            for trial in ranked(trials, objective)
        ],
        "epochs": sum(trial.epochs for trial in trials),
        "seconds": round(sum(trial.seconds for trial in trials), 3),
    }


def write_leaderboard(folder: str, leaderboard: Mapping[str, Any]) -> None:
    """Writes the leaderboard into the folder of the results."""
    write_text(json.dumps(leaderboard, indent=2), folder, LEADERBOARD_FILE)


def read_leaderboard(folder: str) -> dict[str, Any]:
    """Returns the leaderboard in the folder of the results; empty if there is none."""
    text = read_text(folder, LEADERBOARD_FILE)
    return {} if text is None else dict(json.loads(text))
