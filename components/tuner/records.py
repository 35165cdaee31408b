"""What is known of the trials of a search, in plain values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from trainer_module.tuning.plan import Objective

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
    """The best of those that are done, the earliest of equal ones; None if none is."""
    best: TrialRecord | None = None
    for trial in trials:
        if trial.state is not TrialState.DONE or trial.value is None:
            continue
        if best is None or best.value is None or objective.is_better(trial.value, best.value):
            best = trial
    return best


def is_hopeless(trials: Iterable[TrialRecord]) -> bool:
    """Whether others would fail as well: of those that have ended all have, and they are enough."""
    ended = [trial for trial in trials if trial.has_ended]
    return len(ended) >= HOPELESS and all(trial.cause for trial in ended)


def ranked(trials: Iterable[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """The best first; those that were given up, failed or were stopped come last."""
    sign = -1.0 if objective.higher_is_better else 1.0

    def rank(trial: TrialRecord) -> tuple[bool, bool, float, int]:
        value = 0.0 if trial.value is None else sign * trial.value
        return trial.state is not TrialState.DONE, trial.value is None, value, trial.number

    return sorted(trials, key=rank)
