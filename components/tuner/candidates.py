"""The values of trials, and the pruning of trials."""

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
    """Returns the kinds of the first trials of an automatic search, which have default values.

    The first trial is the config itself. The list is empty if the config defines the space.
    """
    if not plan.tune.is_automatic:
        return []
    kinds = next((d.range.extremes for d in dimensions if d.path == KIND), [])
    own_kind = plan.untuned.model.kind
    return [own_kind if kinds else "", *(kind for kind in kinds if kind != own_kind)]


def grid(plan: SearchPlan, dimensions: tuple[Dimension, ...]) -> list[dict[str, Any]] | None:
    """Returns the values of each trial of a grid search, or None for other algorithms.

    Keys that have no effect for the kind of a combination are left out, and equal combinations
    occur once.
    """
    if plan.tune.algorithm is not Algorithm.GRID:
        return None
    settings = plan.untuned
    combinations: dict[str, dict[str, Any]] = {}
    for combination in itertools.product(*(_steps(d.range) for d in dimensions)):
        values: dict[str, Any] = {}
        for dimension, value in zip(dimensions, combination, strict=True):
            if dimension.is_of(*chosen_kinds(settings, values)):
                values[dimension.path] = value
        combinations.setdefault(json.dumps(values, sort_keys=True), values)
    return list(combinations.values())


def _steps(values: Range) -> list[Any]:
    if values.integers is not None:
        low, high = values.integers
        return list(range(low, high + 1))
    return values.extremes


def chosen_kinds(settings: TrainerSettings, chosen: Values) -> tuple[str, str | None]:
    """Returns the kinds of a trial's model and optimizer; other keys depend on these kinds.

    Args:
      chosen: the values of the trial so far, by key.
    """
    kind = chosen.get(KIND, settings.model.kind)
    optimizer = chosen.get(OPTIMIZER, chosen.get(f"{OPTIMIZER}.kind"))
    if isinstance(optimizer, Mapping):
        optimizer = optimizer.get("kind")
    return (
        settings.model.kind if kind == AUTO else kind
    ), optimizer or settings.train.optimizer.kind


def suggest(trial: optuna.Trial, dimension: Dimension) -> Any:
    """Returns the value that the study's sampler suggests for a key."""
    name, values = dimension.name, dimension.range
    if values.choice is not None:
        if len(values.choice) == 1:
            return values.choice[0]
        # Choices are sent as JSON, because they may be lists, which Optuna does not support.
        return json.loads(trial.suggest_categorical(name, list(map(json.dumps, values.choice))))
    if values.integers is not None:
        return trial.suggest_int(name, *values.integers)
    if values.log is not None:
        return trial.suggest_float(name, *values.log, log=True)
    assert values.numbers is not None  # noqa: S101 - a range has one of the four
    return trial.suggest_float(name, *values.numbers)


FIRST_RUNG = 6
"""The number of epochs of a trial, divided by the number of epochs of the first rung."""

MIN_EPOCHS = 2
"""The minimum number of epochs before a comparison, because the first metric is not reliable."""

KEPT_FIRST, KEPT = 3, 2
"""The numbers of best trials that continue after the first rung and after a later rung; the values
at later rungs are more reliable."""

KEPT_SHARE = 8
"""The number of trials, if there are many, of which one continues after a rung."""

USUAL_EPOCHS = 24
"""The number of epochs that Hyperband assumes if the data determines the epochs."""


class TopTrialsPruner(optuna.pruners.BasePruner):
    """Prunes trials that are not among the best few at a rung: sequential successive halving.

    Each rung has twice the epochs of the previous rung. Optuna's own pruner keeps a share of the
    trials so far: because proposals improve, most trials would continue, and the first trials would
    have no competition. If the best k trials so far continue, about k (1 + ln(n / k)) of n
    trials in random order do.
    """

    def __init__(self, first: int, higher_is_better: bool) -> None:
        """Creates a pruner for an objective.

        Args:
          first: the number of epochs of the first rung.
        """
        self._first = first
        self._sign = 1 if higher_is_better else -1

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        """Returns whether a trial is pruned after its latest epoch.

        The best value of each trial so far is compared.
        """
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
        survivors = KEPT_FIRST if epoch == self._first else KEPT
        return better >= max(survivors, (len(reached) + 1) // KEPT_SHARE)

    def _is_rung(self, epoch: int) -> bool:
        multiple, remainder = divmod(epoch, self._first)
        return remainder == 0 and multiple.bit_count() == 1

    def _best(self, trial: optuna.trial.FrozenTrial, epoch: int) -> float:
        values = trial.intermediate_values.items()
        return max(self._sign * value for step, value in values if step <= epoch)


def make_pruner(plan: SearchPlan, settings: TrainerSettings) -> optuna.pruners.BasePruner:
    """Returns the pruner; Hyperband has a pruner of its own, with several brackets.

    If the data determines the number of epochs, an epoch has a hundred steps or more. Two epochs
    are then enough for the first rung.
    """
    epochs = settings.train.epochs
    first = MIN_EPOCHS if epochs == AUTO else max(MIN_EPOCHS, epochs // FIRST_RUNG)
    if plan.tune.algorithm is Algorithm.HYPERBAND:
        max_epochs = USUAL_EPOCHS if epochs == AUTO else max(epochs, first + 1)
        return optuna.pruners.HyperbandPruner(first, max_epochs, reduction_factor=3)
    return TopTrialsPruner(first, plan.objective.higher_is_better)
