"""The plan of a search: its objective and its search space, with a default space per model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import ValidationError

from trainer_module.errors import TrainingError
from trainer_module.machine import count_cores, free_memory
from trainer_module.measures import measures_of
from trainer_module.sections import Settings
from trainer_module.settings import SETTINGS_KEY, TrainerSettings
from trainer_module.settings.model import ENSEMBLE, ZOO
from trainer_module.settings.tasks import BaseTask
from trainer_module.settings.tune import TUNE_KEY, Range, TuneSettings
from trainer_module.tuning.space import KIND, Dimension, Values, candidate, dimensions_of


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial."""

    value: float
    """The value of the objective at the epoch that training would export."""
    metrics: Mapping[str, float]
    """The metrics at the same epoch, by name."""
    examples: int
    """The number of held-out examples."""
    epochs: int
    best_epoch: int
    was_pruned: bool
    """Whether the trial was pruned."""
    seconds: float
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weights of an ensemble's members, if the trial trained members."""


@dataclass(frozen=True)
class Measured:
    """An ensemble's metrics on the examples that its members have not seen."""

    metrics: Mapping[str, float]
    examples: int
    """The number of these examples."""
    weights: Mapping[str, float]
    """The weights of the members."""


@dataclass(frozen=True)
class MemberTrial:
    """A completed trial of an ensemble's members."""

    values: Values
    folder: str
    """The folder of the trial, with the predictions of unseen examples."""


PREFIX = "val_"
"""The prefix of the names of metrics on held-out examples."""
LOSS = f"{PREFIX}loss"


@dataclass(frozen=True)
class Objective:
    """A metric that is computed after each epoch, with the direction of the search."""

    name: str
    """The name in the history of training: `val_auc`."""
    higher_is_better: bool

    @property
    def metric(self) -> str:
        """The name among the metrics of a trained model."""
        return self.name.removeprefix(PREFIX)

    def measures(self, task: BaseTask) -> tuple[str, ...]:
        """Returns the metrics that a trial computes in addition to the metrics that training
        shows.
        """
        return tuple(name for name in _others(task) if name == self.metric)

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """The direction in Optuna's terms."""
        return "maximize" if self.higher_is_better else "minimize"

    def is_better(self, value: float, than: float) -> bool:
        """Returns whether `value` is better than `than`."""
        return value > than if self.higher_is_better else value < than


def objectives_of(task: BaseTask) -> list[str]:
    """Returns the names of all possible objectives of a task."""
    return [LOSS, *(f"{PREFIX}{name}" for name in (*task.shown_metrics, *_others(task)))]


def _others(task: BaseTask) -> list[str]:
    return [name for name in measures_of(task) if name not in task.shown_metrics]


def find_objective(task: BaseTask, name: str | None) -> Objective:
    """Returns the objective with a name; None stands for the task's default objective.

    Raises:
      KeyError: the task has no such metric.
    """
    name = name or task.usual_objective
    if name == LOSS:
        return Objective(LOSS, higher_is_better=False)
    metric = name.removeprefix(PREFIX)
    if name not in objectives_of(task):
        raise KeyError(name)
    return Objective(name, task.metrics()[metric].higher_is_better)


TABLE_KINDS = ("tabular", "mlp", "trees")
"""The kinds of models for tables; none of them is the best for every table."""


def _choice(*values: object) -> Range:
    return Range(choice=list(values))


def _log(low: float, high: float) -> Range:
    return Range(log=(low, high))


def _numbers(low: float, high: float) -> Range:
    return Range.model_validate({"float": (low, high)})


def _integers(low: int, high: int) -> Range:
    return Range.model_validate({"int": (low, high)})


_RATE, _SCHEDULE = "train.learning_rate.initial", "train.learning_rate.schedule"

_TABULAR: dict[str, Range] = {
    _SCHEDULE: _choice("cosine"),
    _RATE: _log(5e-4, 2e-2),
    "train.batch_size": _choice(32, 64, 128, 256),
    "model.hidden_units": _choice([64, 64], [128, 128], [256, 256], [128, 128, 128]),
    "model.dropout": _numbers(0.0, 0.4),
    "train.optimizer.kind": _choice("adamw"),
    "train.optimizer.weight_decay": _log(1e-4, 0.1),
}

_FOREST = {"column_share": _numbers(0.1, 1.0), "min_examples": _choice(1, 2, 3, 5, 10, 20)}

MEMBER_SPACES: dict[str, dict[str, Range]] = {
    "boosted": {
        "model.max_depth": _integers(2, 10),
        "model.shrinkage": _log(0.02, 0.3),
        "model.subsample": _numbers(0.5, 1.0),
        "model.leaf_l2": _log(0.1, 30.0),
        "model.column_share": _numbers(0.2, 1.0),
    },
    "extra": {f"model.extra.{key}": values for key, values in _FOREST.items()},
    "random": {f"model.random.{key}": values for key, values in _FOREST.items()},
    "tabular": _TABULAR,
}
"""The search space of each member of an ensemble. The linear model has none, as each of its
trainings tries several regularisations."""

LEAST_SHARE = 0.2
"""A number that is added to each member's weight when trials are divided among the members, as
other settings may make a member useful."""

MAX_PROCESSES, BYTES_PER_PROCESS = 4, 2 * 2**30
"""The largest number of processes of an ensemble's search if the config gives none, and the free
memory in bytes that each needs. Large data occupies several cores in each process."""

MEMBERS = "model.members"
"""The key of an ensemble's members."""

SPACES: dict[str, dict[str, Range]] = {
    "tabular": _TABULAR,
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
"""The default search space of each kind of model that has one."""

FALLBACK_SPACE = {"train.learning_rate": _log(1e-5, 3e-3)}
"""The default search space of all other kinds of models."""


def automatic_space(settings: TrainerSettings) -> tuple[Dimension, ...]:
    """Returns the search space for a config that does not define one.

    Args:
      settings: the complete settings of the config, which determine the kinds of models. The values
        of the settings do not limit the search space.
    """
    if settings.model.kind == ENSEMBLE:
        return tuple(
            Dimension(path, values, (member,))
            for member in searched_members(settings)
            for path, values in MEMBER_SPACES[member].items()
        )
    kinds = kinds_for(settings)
    kind_dimension = (Dimension(KIND, _choice(*kinds)),) if len(kinds) > 1 else ()
    # The key `model.layers` replaces `model.filters`.
    excluded = "model.filters" if settings.model.layers is not None else ""
    return kind_dimension + tuple(
        Dimension(path, values, (kind,))
        for kind in kinds
        for path, values in SPACES.get(kind, FALLBACK_SPACE).items()
        if path != excluded
    )


def searched_members(settings: TrainerSettings) -> list[str]:
    """Returns the members of an ensemble that have settings to search."""
    return [name for name in MEMBER_SPACES if name in settings.members]


def kinds_for(settings: TrainerSettings) -> tuple[str, ...]:
    """Returns the kinds of models that a search tries; all of them take the same
    transformed data.
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
"""The number of parts of the train split; each trial holds out one part to measure the model."""


class SearchPlan(Settings):
    """The settings of training and of the search."""

    given: dict[str, Any]
    """The settings in the config, without defaults, because defaults depend on the kind of
    model.
    """
    tune: TuneSettings

    @classmethod
    def from_custom_config(cls, custom_config: dict[str, Any]) -> SearchPlan:
        """Reads the plan from `custom_config`."""
        return cls(given=custom_config[SETTINGS_KEY], tune=custom_config[TUNE_KEY])

    def settings(self, values: Values) -> TrainerSettings:
        """Returns the complete settings of a trial, or of the config for no values.

        Raises:
          TrainingError: the values contradict each other.
        """
        try:
            return TrainerSettings.model_validate(candidate(self.given, values))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise TrainingError(f"{where}: {first['msg']}") from None

    @cached_property
    def untuned(self) -> TrainerSettings:
        """The complete settings of the config, without the values of a trial."""
        return self.settings({})

    @cached_property
    def searches_members(self) -> bool:
        """Whether the trials train the members of an ensemble one by one."""
        return self.tune.is_automatic and self.untuned.model.kind == ENSEMBLE

    @cached_property
    def parallel(self) -> int:
        """The number of processes that run trials."""
        if self.tune.parallel or not self.searches_members:
            return self.tune.parallel or 1
        return max(1, min(count_cores(), MAX_PROCESSES, free_memory() // BYTES_PER_PROCESS))

    def next_member(self, trials: Mapping[str, int], weights: Mapping[str, float]) -> str:
        """Returns the member of an ensemble that the next trial trains.

        The trials are divided in proportion to the members' weights (the method of D'Hondt, 1882).

        Args:
          trials: the number of trials so far by member.
          weights: the weights of the members in the ensemble of the config; empty if unknown.
        """
        return max(
            searched_members(self.untuned),
            key=lambda name: (weights.get(name, 0) + LEAST_SHARE) / (trials.get(name, 0) + 1),
        )

    @cached_property
    def objective(self) -> Objective:
        """The objective of the search."""
        return find_objective(self.untuned.label_task, self.tune.objective)

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions of the search space."""
        if self.tune.is_automatic:
            return automatic_space(self.untuned)
        return dimensions_of(self.tune.space)
