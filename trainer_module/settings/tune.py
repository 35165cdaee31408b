"""What is searched for before the training: the section `tune` of a config."""

from __future__ import annotations

import math
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PositiveInt,
    field_validator,
    model_validator,
)

from trainer_module.sections import Settings
from trainer_module.settings.durations import SomeTime

TUNE_KEY = "tune"
"""The key of these settings in the `custom_config` of Tuner."""

USUAL_TRIALS = 20
"""Where a space is given, and neither `trials` nor `timeout`."""

USUAL_TIMEOUT = timedelta(minutes=10)
"""Where neither a space is given, nor `trials`, nor `timeout`."""


class Algorithm(StrEnum):
    """What proposes the values of the next trial."""

    TPE = "tpe"
    """From the trials so far, by a tree-structured Parzen estimator (Bergstra et al., 2011)."""
    RANDOM = "random"
    GRID = "grid"
    """Every combination of choices, in order."""
    HYPERBAND = "hyperband"
    """As `tpe`; trials are given up by Hyperband (Li et al., 2018) instead of `prune`."""


class Range(Settings):
    """The values that a key may take: one of the four."""

    choice: list[JsonValue] | None = None
    """One of these, of whatever type the key has."""
    integers: tuple[int, int] | None = Field(default=None, alias="int")
    """A whole number, from the first to the second."""
    numbers: tuple[float, float] | None = Field(default=None, alias="float")
    """A number, from the first to the second."""
    log: tuple[float, float] | None = None
    """A number, each order of magnitude as likely as another."""

    @model_validator(mode="after")
    def _is_one_range(self) -> Range:
        given = (self.choice, self.integers, self.numbers, self.log)
        if sum(one is not None for one in given) != 1:
            raise ValueError(
                "give one of {choice: [32, 64]}, {int: [1, 4]}, {float: [0, 0.5]} and "
                "{log: [1e-4, 1e-2]}"
            )
        if self.choice is not None:
            if not self.choice:
                raise ValueError("choice is empty; name at least one value, such as {choice: [32]}")
            return self
        name, (low, high) = self._bounds()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{name} needs two finite numbers, found {low:g} and {high:g}")
        if low >= high:
            raise ValueError(
                f"{name} goes from {low:g} to {high:g}, in which there is nothing; the smaller "
                "number comes first"
            )
        if name == "log" and low <= 0:
            raise ValueError(
                f"log begins at {low:g}, which has no logarithm; begin above 0, such as at "
                f"{high / 1000:g}, or use float"
            )
        return self

    def _bounds(self) -> tuple[str, tuple[float, float]]:
        if self.integers is not None:
            return "int", self.integers
        if self.numbers is not None:
            return "float", self.numbers
        assert self.log is not None  # noqa: S101 - one of them is set
        return "log", self.log

    @property
    def extremes(self) -> list[Any]:
        """Every choice, or the ends of a range."""
        return list(self.choice) if self.choice is not None else list(self._bounds()[1])

    @property
    def probes(self) -> list[Any]:
        """What a key has to take for all to be right: of numbers also one that is not whole."""
        if self.choice is not None or self.integers is not None:
            return self.extremes
        low, high = self.extremes
        return [low, low + (high - low) / math.e, high]


def _as_mapping(value: Any) -> Any:
    """`auto` alone, or true, stands for a search by itself."""
    return {"auto": True} if value in ("auto", True) else value


class TuneSettings(Settings):
    """What is searched for before the training, and for how long; without it nothing is."""

    auto: bool = False
    """The space follows from the features and the task; so it does where there is no `space`. The
    first trial is the config as it stands, which stays unless another is better by more than
    chance."""
    space: dict[str, Range] = {}
    """By key of `model` and `train`, the values to choose from: `train.learning_rate: {log: [1e-4,
    1e-2]}`, `model.dropout: {float: [0, 0.5]}`, `model.members: {int: [2, 16]}`,
    `train.batch_size: {choice: [32, 64]}`. A key counts only for the kinds of models that read it.
    """
    objective: str | None = None
    """What the best trial is best at: `val_loss`, or `val_` and a metric of the Evaluator's that
    training can measure too, such as `val_f1` and `val_macro_recall`; default: `val_auc`, of
    several classes `val_accuracy`, of numbers `val_rmse`, of counts `val_loss`."""
    trials: PositiveInt | None = None
    """How many at most; default: 20 where there is a `space` and no `timeout`."""
    timeout: SomeTime | None = None
    """How long at most, such as 20m; default: 10m where there are neither `trials` nor a `space`.
    """
    algorithm: Algorithm = Algorithm.TPE
    """`tpe`, `random`, `grid` or `hyperband`."""
    prune: bool = True
    """Whether trials that fall behind are given up early, by successive halving over the epochs."""
    parallel: PositiveInt = 1
    """Trials at a time, each in a process of its own; with 1 the same seed gives the same trials.
    """
    reuse: bool = False
    """Whether later runs, on other data, take what an earlier search found; until the config or the
    code changes, or the data has drifted (`drift`)."""

    @field_validator("algorithm", mode="before")
    @classmethod
    def _is_no_gaussian_process(cls, value: Any) -> Any:
        if value == "gp":
            raise ValueError(
                "Optuna's Gaussian processes need PyTorch, which is not installed with TensorFlow; "
                f"right is one of {', '.join(Algorithm)}"
            )
        return value

    @model_validator(mode="after")
    def _auto_has_no_space(self) -> TuneSettings:
        if self.auto and self.space:
            raise ValueError("give auto or space, not both")
        return self

    @property
    def is_automatic(self) -> bool:
        """Whether the space follows from the features and the task."""
        return not self.space

    @property
    def most_trials(self) -> int | None:
        """How many trials there are at most; None if only the time ends them."""
        if self.trials is None and self.timeout is None and self.space:
            return USUAL_TRIALS
        return self.trials

    @property
    def most_seconds(self) -> float | None:
        """How long the search takes at most; None if only the number of trials ends it."""
        if self.trials is None and self.timeout is None and not self.space:
            return USUAL_TIMEOUT.total_seconds()
        return None if self.timeout is None else self.timeout.total_seconds()


AnyTune = Annotated[
    TuneSettings,
    BeforeValidator(_as_mapping, json_schema_input_type=Literal["auto"] | TuneSettings),
]
"""`auto`, or a mapping."""

HOW_LONG = ("trials", "timeout", "parallel")
"""Keys of TuneSettings that say when a search ends, not where it looks."""
