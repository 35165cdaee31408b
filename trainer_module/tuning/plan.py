"""What a search is told: where it looks, also where a config gives no space, and what for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import ValidationError

from trainer_module.errors import TrainingError
from trainer_module.measures import measures_of
from trainer_module.sections import Settings
from trainer_module.settings import SETTINGS_KEY, TrainerSettings
from trainer_module.settings.model import ZOO
from trainer_module.settings.tasks import BaseTask
from trainer_module.settings.tune import TUNE_KEY, Range, TuneSettings
from trainer_module.tuning.space import KIND, Dimension, Values, candidate, dimensions_of


@dataclass(frozen=True)
class TrialResult:
    """What a candidate came to."""

    value: float
    """Of the objective, at the epoch that would be exported."""
    metrics: Mapping[str, float]
    """All that was measured there."""
    examples: int
    """That it was measured on."""
    epochs: int
    best_epoch: int
    was_pruned: bool
    """Whether it was given up before its end."""
    seconds: float


PREFIX = "val_"
"""Begins the names of what is measured on examples that are not trained on."""
LOSS = f"{PREFIX}loss"


@dataclass(frozen=True)
class Objective:
    """A number that each epoch of a training comes to, and which direction is better."""

    name: str
    """As the history of a training has it: `val_auc`."""
    higher_is_better: bool

    @property
    def metric(self) -> str:
        """Its name among what a trained model came to."""
        return self.name.removeprefix(PREFIX)

    def measures(self, task: BaseTask) -> tuple[str, ...]:
        """What a training has to measure for it, besides what it shows anyway."""
        return tuple(name for name in _others(task) if name == self.metric)

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """As Optuna calls it."""
        return "maximize" if self.higher_is_better else "minimize"

    def is_better(self, value: float, than: float) -> bool:
        """Returns whether one value beats another."""
        return value > than if self.higher_is_better else value < than


def objectives_of(task: BaseTask) -> list[str]:
    """Returns the names of all that a search can look for."""
    return [LOSS, *(f"{PREFIX}{name}" for name in (*task.shown_metrics, *_others(task)))]


def _others(task: BaseTask) -> list[str]:
    return [name for name in measures_of(task) if name not in task.shown_metrics]


def find_objective(task: BaseTask, name: str | None) -> Objective:
    """Returns the objective of a name; None is the task's usual one.

    KeyError if it is not measured.
    """
    name = name or task.usual_objective
    if name == LOSS:
        return Objective(LOSS, higher_is_better=False)
    metric = name.removeprefix(PREFIX)
    if name not in objectives_of(task):
        raise KeyError(name)
    return Objective(name, task.metrics()[metric].higher_is_better)


TABLE_KINDS = ("tabular", "mlp", "trees")
"""Models of columns, of which none is the best for every table."""


def _choice(*values: object) -> Range:
    return Range(choice=list(values))


def _log(low: float, high: float) -> Range:
    return Range(log=(low, high))


def _numbers(low: float, high: float) -> Range:
    return Range.model_validate({"float": (low, high)})


def _integers(low: int, high: int) -> Range:
    return Range.model_validate({"int": (low, high)})


_RATE, _SCHEDULE = "train.learning_rate.initial", "train.learning_rate.schedule"

SPACES: dict[str, dict[str, Range]] = {
    "tabular": {
        _SCHEDULE: _choice("cosine"),
        _RATE: _log(5e-4, 2e-2),
        "train.batch_size": _choice(32, 64, 128, 256),
        "model.hidden_units": _choice([64, 64], [128, 128], [256, 256], [128, 128, 128]),
        "model.dropout": _numbers(0.0, 0.4),
        "train.optimizer.kind": _choice("adamw"),
        "train.optimizer.weight_decay": _log(1e-4, 0.1),
    },
    "mlp": {
        "train.learning_rate": _log(1e-4, 1e-2),
        "train.batch_size": _choice(32, 64, 128),
        "model.hidden_units": _choice([64], [128, 64], [256, 128], [128, 128, 128]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "wide_deep": {
        "train.learning_rate": _log(1e-4, 1e-2),
        "train.batch_size": _choice(32, 64, 128),
        "model.hidden_units": _choice([64], [128, 64], [256, 128]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "trees": {
        "model.max_depth": _integers(3, 9),
        "model.shrinkage": _log(0.02, 0.3),
    },
    "cnn": {
        "train.learning_rate": _log(2e-4, 1e-2),
        "train.batch_size": _choice(32, 64, 128),
        "model.filters": _choice([16, 32], [32], [32, 64], [32, 64, 128]),
        "model.hidden_units": _choice([], [64], [128]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "convnet": {
        _SCHEDULE: _choice("cosine"),
        _RATE: _log(5e-4, 8e-3),
        "train.optimizer.kind": _choice("adamw"),
        "train.optimizer.weight_decay": _log(1e-3, 0.1),
        "model.hidden_units": _choice([], [64]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "bag": {
        _SCHEDULE: _choice("cosine"),
        _RATE: _log(5e-3, 0.3),
        "train.optimizer.kind": _choice("sgd"),
        "train.optimizer.momentum": _choice(0.9),
        "train.optimizer.clip_norm": _choice(5.0),
        "model.hidden_units": _choice([], [32], [64]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "text_cnn": {
        "train.learning_rate": _log(2e-4, 5e-3),
        "model.filters": _choice([64], [100], [200]),
        "model.embedding_size": _choice(16, 32, 64),
        "model.dropout": _numbers(0.2, 0.7),
    },
    "bert": {
        _SCHEDULE: _choice("linear"),
        _RATE: _log(3e-5, 1e-3),
        "model.dropout": _numbers(0.0, 0.3),
    },
}
"""By kind of model what is worth looking for; of others the rate of Adam alone."""

OTHERWISE = {"train.learning_rate": _log(1e-5, 3e-3)}


def automatic_space(settings: TrainerSettings) -> tuple[Dimension, ...]:
    """What is searched where a config gives no space.

    Args:
      settings: of the config as it stands, complete. What it gives of a key counts for the first
          trial alone; a kind that it names stays.
    """
    kinds = kinds_for(settings)
    chosen = (Dimension(KIND, _choice(*kinds)),) if len(kinds) > 1 else ()
    replaced = "model.filters" if settings.model.layers is not None else ""
    return chosen + tuple(
        Dimension(path, values, (kind,))
        for kind in kinds
        for path, values in SPACES.get(kind, OTHERWISE).items()
        if path != replaced
    )


def kinds_for(settings: TrainerSettings) -> tuple[str, ...]:
    """Returns the kinds of models that a search tries: those that the same transformed data is
    for.
    """
    kind = settings.model.kind
    if kind not in TABLE_KINDS:
        return (kind,)
    types = {feature.type for feature in settings.features.values()}
    plain = not settings.target.has_options
    return tuple(
        name
        for name in TABLE_KINDS
        if not types & {*ZOO[name].refuses}
        and (not ZOO[name].tasks or (plain and settings.target.kind in ZOO[name].tasks))
        and (name == kind or ZOO[name].builder or settings.train.loss is None)
        and (name == kind or settings.optimize.suits(name))
    )


PARTS = 5
"""The train split is dealt into so many; one of them is held out from a trial and measured on."""


class SearchPlan(Settings):
    """The settings as a config gives them, and those of the search."""

    given: dict[str, Any]
    """Of the training, without what the config leaves out: another kind of model has other values
    for that."""
    tune: TuneSettings

    @classmethod
    def from_custom_config(cls, custom_config: dict[str, Any]) -> SearchPlan:
        """What `custom_config` says, with the columns that the data was found to have."""
        return cls(given=custom_config[SETTINGS_KEY], tune=custom_config[TUNE_KEY])

    def settings(self, values: Values) -> TrainerSettings:
        """Those of a candidate.

        Raises:
          TrainingError: the values do not go together.
        """
        try:
            return TrainerSettings.model_validate(candidate(self.given, values))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise TrainingError(f"{where}: {first['msg']}") from None

    @cached_property
    def untuned(self) -> TrainerSettings:
        """Those of the config as it stands."""
        return self.settings({})

    @cached_property
    def objective(self) -> Objective:
        """What is looked for."""
        return find_objective(self.untuned.label_task, self.tune.objective)

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Where it is looked for."""
        if self.tune.is_automatic:
            return automatic_space(self.untuned)
        return dimensions_of(self.tune.space)
