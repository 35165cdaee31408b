"""The trials of a search, the choice of the best one, and the leaderboard.

If there is no additional split, a trial is measured on a held-out fifth of the train split. Among
dozens of trials, the best trial may be best by chance. An automatic search therefore trains the
config and the best few trials again from scratch, with each of the other fifths held out in turn,
and compares them on each fifth.
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

MAX_FAILURES = 5
"""The number of failed trials after which the search ends, if no trial has succeeded."""


class TrialState(StrEnum):
    """The state of a trial."""

    RUNNING = "running"
    """A trial that is in progress, or that was interrupted and will be resumed."""
    DONE = "done"
    PRUNED = "pruned"
    """A trial that was ended early, because it was worse than other trials."""
    FAILED = "failed"
    STOPPED = "stopped"
    """A trial that was ended because the time of the search was over."""


class TrialRecord(BaseModel):
    """The values and the results of one trial."""

    number: int
    """The number of the trial, counted from 0."""
    state: TrialState
    values: dict[str, Any] = {}
    """The values that replace values of the config, by key."""
    value: float | None = None
    """The value of the objective; for a pruned trial the value of its last epoch."""
    examples: int = 0
    """The number of examples on which the trial was measured."""
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0
    metrics: dict[str, float] = {}
    cause: str = ""
    """The cause, if the trial has failed."""
    weights: dict[str, float] = {}
    """The weights of an ensemble's members, if the trial trained members."""
    is_joined: bool = False
    """Whether this is no training, but the ensemble of the best members of all trials."""
    again: dict[int, float] = {}
    """The objective in the final training runs of this trial, by the part of the train split that
    was held out. Parts count from 0; part 0 is held out of all trials."""
    seconds_again: float = 0.0
    """The seconds of the final training runs."""

    @property
    def has_ended(self) -> bool:
        """Whether the trial has ended."""
        return self.state is not TrialState.RUNNING


def best_of(trials: Iterable[TrialRecord], objective: Objective) -> TrialRecord | None:
    """Returns the best completed trial, or None. Of equal trials, the earliest is the best."""
    best: TrialRecord | None = None
    for trial in trials:
        if trial.state is not TrialState.DONE or trial.value is None:
            continue
        if best is None or best.value is None or objective.is_better(trial.value, best.value):
            best = trial
    return best


def has_too_many_failures(trials: Iterable[TrialRecord]) -> bool:
    """Returns whether at least `MAX_FAILURES` trials have ended, and all of them have failed."""
    ended = [trial for trial in trials if trial.has_ended]
    return len(ended) >= MAX_FAILURES and all(trial.cause for trial in ended)


def ranked(trials: Iterable[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """Returns the trials, best first; pruned, failed and stopped trials come last."""
    sign = -1.0 if objective.higher_is_better else 1.0

    def rank(trial: TrialRecord) -> tuple[bool, bool, float, int]:
        value = 0.0 if trial.value is None else sign * trial.value
        return trial.state is not TrialState.DONE, trial.value is None, value, trial.number

    return sorted(trials, key=rank)


Final = tuple[int, int]
"""A final training run: the number of the trial, and the part of the train split that is held
out."""

MAX_FINALISTS = 3
"""The maximum number of trials that are trained again, in addition to the config."""

MIN_ROUNDS = 2
"""The minimum number of parts on which finalists are measured, for a standard error."""

TRIALS_PER_FINAL = 2
"""The number of trials for each final training run, if the number of trials limits the search."""

SHARE_OF_TIME = 1 / 3
"""The share of the time for final training runs, if the time limits the search."""


def finalists(trials: Sequence[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """Returns the finalists: the config, which is the first trial, and the best other trials.

    The list is empty if the config's trial is not completed.
    """
    done = [trial for trial in ranked(trials, objective) if trial.state is TrialState.DONE]
    config = [trial for trial in done if trial.number == 0]
    others = [trial for trial in done if trial.number != 0]
    return [*config, *others[:MAX_FINALISTS]] if config and others else []


def plan_finals(
    trials: Sequence[TrialRecord], objective: Objective, seconds: float | None
) -> list[Final]:
    """Returns the final training runs, ordered by part.

    There are as many finalists as can be trained on `MIN_ROUNDS` parts within the limit.

    Args:
      seconds: the remaining seconds, summed over processes, or None if the number of trials limits
        the search.
    """
    remaining = finalists(trials, objective)
    while len(remaining) > 1:
        costs = sum(
            trial.seconds if seconds is not None else TRIALS_PER_FINAL for trial in remaining
        )
        rounds = math.floor((len(trials) if seconds is None else seconds) / max(costs, 1e-9))
        if rounds >= MIN_ROUNDS:
            return [
                (trial.number, part)
                for part in range(1, min(rounds + 1, PARTS))
                for trial in remaining
            ]
        remaining.pop()
    return []


def choose(
    trials: Sequence[TrialRecord],
    objective: Objective,
    is_automatic: bool,
    searches_members: bool = False,
) -> TrialRecord | None:
    """Returns the trial whose values the training uses, or None if no trial is completed.

    Args:
      trials: the trials in the order of their numbers.
      is_automatic: whether the first trial is the config itself. It is then chosen, unless another
        trial is better by more than the standard error.
      searches_members: whether the trials train members of an ensemble. The ensemble of the best
        members is then chosen if there is one, and otherwise the first trial.
    """
    best = best_of(trials, objective)
    first = trials[0] if trials and trials[0].state is TrialState.DONE else None
    if searches_members:
        return next((trial for trial in trials if trial.is_joined), first)
    if best is None or first is None or not is_automatic:
        return best
    others = [trial for trial in trials[1:] if len(_common_folds(first, trial)) >= MIN_ROUNDS]
    if not others:
        return first if _may_be_chance(first, best, objective) else best
    gains = {trial.number: _improvements(first, trial, objective) for trial in others}
    winner = max(others, key=lambda trial: statistics.fmean(gains[trial.number]))
    winner_gains = gains[winner.number]
    error = statistics.stdev(winner_gains) / math.sqrt(len(winner_gains))
    return winner if statistics.fmean(winner_gains) > error else first


def _common_folds(first: TrialRecord, other: TrialRecord) -> list[int]:
    """Returns the parts on which both trials were measured in final training runs."""
    return sorted(first.again.keys() & other.again.keys())


def _improvements(first: TrialRecord, other: TrialRecord, objective: Objective) -> list[float]:
    """Returns the improvement of another trial over the first trial, on each common part."""
    sign = 1 if objective.higher_is_better else -1
    return [sign * (other.again[part] - first.again[part]) for part in _common_folds(first, other)]


def _may_be_chance(first: TrialRecord, best: TrialRecord, objective: Objective) -> bool:
    """Returns whether the improvement may be chance.

    The error of a measurement on n examples is estimated as (1 - metric) / sqrt(n), or for a loss
    as loss / sqrt(n).
    """
    if first.value is None or best.value is None or not best.examples:
        return False
    sign, offset = (-1, 1) if objective.higher_is_better else (1, 0)
    errors = [offset + sign * value for value in (first.value, best.value)]
    return errors[0] - errors[1] <= abs(errors[0]) / math.sqrt(best.examples)


LEADERBOARD_FILE = "leaderboard.json"
"""The file of the leaderboard in the artifact of the results."""


def summarize(
    trials: Sequence[TrialRecord],
    objective: Objective,
    is_automatic: bool,
    searches_members: bool = False,
) -> dict[str, Any]:
    """Returns the leaderboard for JSON: the chosen trial, and all trials, best first.

    The arguments are those of `choose`.
    """
    best = choose(trials, objective, is_automatic, searches_members)
    return {
        "objective": objective.name,
        "higher_is_better": objective.higher_is_better,
        "best": None if best is None else best.number,
        "values": {} if best is None else best.values,
        **({"searches_members": True} if searches_members else {}),
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
    """Returns the leaderboard in the folder of the results, or {} if there is no leaderboard."""
    text = read_text(folder, LEADERBOARD_FILE)
    return {} if text is None else dict(json.loads(text))
