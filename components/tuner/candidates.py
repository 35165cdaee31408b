"""What trials try: the first ones, a grid, or what a sampler proposes for each key."""

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


def starts(plan: SearchPlan, dimensions: tuple[Dimension, ...]) -> list[str]:
    """The kinds of the first trials of a search by itself: each as it is by default.

    The first is the config's, as it stands; none of a search over a space that was given.
    """
    if not plan.tune.is_automatic:
        return []
    kinds = next((d.range.extremes for d in dimensions if d.path == KIND), [])
    own = plan.untuned.model.kind
    return [own if kinds else "", *(kind for kind in kinds if kind != own)]


def grid(plan: SearchPlan, dimensions: tuple[Dimension, ...]) -> list[dict[str, Any]] | None:
    """Every combination of choices, each once: what does not count for a kind makes no other."""
    if plan.tune.algorithm is not Algorithm.GRID:
        return None
    settings = plan.untuned
    found: dict[str, dict[str, Any]] = {}
    for combination in itertools.product(*(_steps(d.range) for d in dimensions)):
        values: dict[str, Any] = {}
        for dimension, value in zip(dimensions, combination, strict=True):
            if dimension.is_of(*decided(settings, values)):
                values[dimension.path] = value
        found.setdefault(json.dumps(values, sort_keys=True), values)
    return list(found.values())


def _steps(values: Range) -> list[Any]:
    if values.integers is not None:
        low, high = values.integers
        return list(range(low, high + 1))
    return values.extremes


def decided(settings: TrainerSettings, chosen: Values) -> tuple[str, str | None]:
    """The kind of a candidate's model and its optimizer, which say what else counts."""
    kind = chosen.get(KIND, settings.model.kind)
    optimizer = chosen.get(OPTIMIZER, chosen.get(f"{OPTIMIZER}.kind"))
    if isinstance(optimizer, Mapping):
        optimizer = optimizer.get("kind")
    return (
        settings.model.kind if kind == AUTO else kind
    ), optimizer or settings.train.optimizer.kind


def suggest(trial: optuna.Trial, dimension: Dimension) -> Any:
    """A value of a key, by the sampler of the trial's study."""
    name, values = dimension.name, dimension.range
    if values.choice is not None:
        if len(values.choice) == 1:
            return values.choice[0]
        # Choices may be lists, which Optuna does not take.
        return json.loads(trial.suggest_categorical(name, list(map(json.dumps, values.choice))))
    if values.integers is not None:
        return trial.suggest_int(name, *values.integers)
    if values.log is not None:
        return trial.suggest_float(name, *values.log, log=True)
    assert values.numbers is not None  # noqa: S101 - one of the four is set
    return trial.suggest_float(name, *values.numbers)
