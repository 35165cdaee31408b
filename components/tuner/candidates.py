"""The values that trials try, and the pruning of trials."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import optuna

from trainer_module.settings import AUTO, TrainerSettings
from trainer_module.settings.tune import Algorithm, Range
from trainer_module.tuning.plan import SearchPlan
from trainer_module.tuning.space import KIND, OPTIMIZER, Dimension, Values


def first_kinds(plan: SearchPlan, dimensions: tuple[Dimension, ...]) -> list[str]:
    """Returns the kinds of the first trials of an automatic search, each with default values.

    The first is the config's own kind; empty for a search over a given space.
    """
    if not plan.tune.is_automatic:
        return []
    kinds = next((d.range.extremes for d in dimensions if d.path == KIND), [])
    own = plan.untuned.model.kind
    return [own if kinds else "", *(kind for kind in kinds if kind != own)]


def grid(plan: SearchPlan, dimensions: tuple[Dimension, ...]) -> list[dict[str, Any]] | None:
    """Returns every combination of choices once, without keys that have no effect for a kind."""
    if plan.tune.algorithm is not Algorithm.GRID:
        return None
    settings = plan.untuned
    found: dict[str, dict[str, Any]] = {}
    for combination in itertools.product(*(_steps(d.range) for d in dimensions)):
        values: dict[str, Any] = {}
        for dimension, value in zip(dimensions, combination, strict=True):
            if dimension.is_of(*chosen_kinds(settings, values)):
                values[dimension.path] = value
        found.setdefault(json.dumps(values, sort_keys=True), values)
    return list(found.values())


def _steps(values: Range) -> list[Any]:
    if values.integers is not None:
        low, high = values.integers
        return list(range(low, high + 1))
    return values.extremes


def chosen_kinds(settings: TrainerSettings, chosen: Values) -> tuple[str, str | None]:
    """Returns the kind of a candidate's model and of its optimizer, which determine the other
    keys.
    """
    kind = chosen.get(KIND, settings.model.kind)
    optimizer = chosen.get(OPTIMIZER, chosen.get(f"{OPTIMIZER}.kind"))
    if isinstance(optimizer, Mapping):
        optimizer = optimizer.get("kind")
    return (
        settings.model.kind if kind == AUTO else kind
    ), optimizer or settings.train.optimizer.kind


def suggest(trial: optuna.Trial, dimension: Dimension) -> Any:
    """Returns a value of a key, by the sampler of the trial's study."""
    name, values = dimension.name, dimension.range
    if values.choice is not None:
        if len(values.choice) == 1:
            return values.choice[0]
        # Choices may be lists, which Optuna does not support.
        return json.loads(trial.suggest_categorical(name, list(map(json.dumps, values.choice))))
    if values.integers is not None:
        return trial.suggest_int(name, *values.integers)
    if values.log is not None:
        return trial.suggest_float(name, *values.log, log=True)
    assert values.numbers is not None  # noqa: S101 - one of the four is set
    return trial.suggest_float(name, *values.numbers)


FIRST_RUNG = 6
"""The number of parts of the epochs, after the first of which trials are first compared."""

FEWEST_EPOCHS = 2
"""The least number of epochs before a comparison, as the first metric is not reliable."""

KEPT_FIRST, KEPT = 3, 2
"""The number of best trials among which one has to be to continue at the first rung, and at later
ones, which are more reliable."""

KEPT_SHARE = 8
"""The share of best trials, one of this number, that continue if there are many trials."""

USUAL_EPOCHS = 24
"""The number of epochs for Hyperband if the data determines the epochs."""


class TopTrialsPruner(optuna.pruners.BasePruner):
    """Prunes trials that are not among the best few at a rung: sequential successive halving.

    A rung has twice the epochs of the one before. Optuna's own pruner keeps a share of the trials
    so far; as proposals improve, most of them would continue, and the first ones would face no
    competition. Of n trials in random order about k (1 + ln(n / k)) are among the best k when they
    arrive.
    """

    def __init__(self, first: int, higher_is_better: bool) -> None:
        """Takes the epochs of the first rung, and the direction of the objective."""
        self._first = first
        self._sign = 1 if higher_is_better else -1

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        """Returns whether a trial is pruned after its last epoch; its best epoch is compared."""
        epoch = trial.last_step
        if epoch is None or not self._is_rung(epoch):
            return False
        reached = [
            other
            for other in study.get_trials(deepcopy=False)
            if other.number != trial.number and epoch in other.intermediate_values
        ]
        own = self._best(trial, epoch)
        better = sum(self._best(other, epoch) >= own for other in reached)
        kept = KEPT_FIRST if epoch == self._first else KEPT
        return better >= max(kept, (len(reached) + 1) // KEPT_SHARE)

    def _is_rung(self, epoch: int) -> bool:
        times, left = divmod(epoch, self._first)
        return left == 0 and times.bit_count() == 1

    def _best(self, trial: optuna.trial.FrozenTrial, epoch: int) -> float:
        values = trial.intermediate_values.items()
        return max(self._sign * value for step, value in values if step <= epoch)


def make_pruner(plan: SearchPlan, settings: TrainerSettings) -> optuna.pruners.BasePruner:
    """Returns the pruner; Hyperband has its own, with several brackets.

    If the data determines the epochs, each has a hundred steps or more, and two are enough for the
    first rung.
    """
    epochs = settings.train.epochs
    first = FEWEST_EPOCHS if epochs == AUTO else max(FEWEST_EPOCHS, epochs // FIRST_RUNG)
    if plan.tune.algorithm is Algorithm.HYPERBAND:
        most = USUAL_EPOCHS if epochs == AUTO else max(epochs, first + 1)
        return optuna.pruners.HyperbandPruner(first, most, reduction_factor=3)
    return TopTrialsPruner(first, plan.objective.higher_is_better)
