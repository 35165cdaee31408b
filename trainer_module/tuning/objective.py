"""What a search looks for, in numbers that training measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer_module.measures import measures_of
from trainer_module.settings.tasks import BaseTask

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
        """Whether one value beats another."""
        return value > than if self.higher_is_better else value < than


def objectives_of(task: BaseTask) -> list[str]:
    """The names of all that a search can look for."""
    return [LOSS, *(f"{PREFIX}{name}" for name in (*task.shown_metrics, *_others(task)))]


def _others(task: BaseTask) -> list[str]:
    return [name for name in measures_of(task) if name not in task.shown_metrics]


def find_objective(task: BaseTask, name: str | None) -> Objective:
    """The objective of a name; None is the task's usual one. KeyError if it is not measured."""
    name = name or task.usual_objective
    if name == LOSS:
        return Objective(LOSS, higher_is_better=False)
    metric = name.removeprefix(PREFIX)
    if name not in objectives_of(task):
        raise KeyError(name)
    return Objective(name, task.metrics()[metric].higher_is_better)
