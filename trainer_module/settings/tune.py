"""The section `tune` of a config: the hyperparameter search before the training."""

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
"""The key of these settings in the `custom_config` of the Tuner."""

DEFAULT_TRIALS = 20
"""The number of trials if the config has a `space`, but neither `trials` nor `timeout`."""

DEFAULT_TIMEOUT = timedelta(minutes=10)
"""The timeout if the config has none of `space`, `trials` and `timeout`."""


class Algorithm(StrEnum):
    """The algorithm that proposes the values of each trial."""

    TPE = "tpe"
    """A tree-structured Parzen estimator fitted to the earlier trials (Bergstra et al., 2011)."""
    RANDOM = "random"
    """Values drawn at random, each trial independently."""
    GRID = "grid"
    """Every combination of the choices, in order."""
    HYPERBAND = "hyperband"
    """The proposals of `tpe`; Hyperband (Li et al., 2018) prunes trials, and `prune` has no effect.
    """


class Range(Settings):
    """The search range of a key: exactly one of the four fields is set."""

    choice: list[JsonValue] | None = None
    """The values to choose from; they may have any type that the key accepts."""
    integers: tuple[int, int] | None = Field(default=None, alias="int")
    """The smallest and the largest whole number."""
    numbers: tuple[float, float] | None = Field(default=None, alias="float")
    """The smallest and the largest number, sampled uniformly."""
    log: tuple[float, float] | None = None
    """The smallest and the largest number, sampled uniformly on a logarithmic scale."""

    @model_validator(mode="after")
    def _check_range(self) -> Range:
        fields = (self.choice, self.integers, self.numbers, self.log)
        if sum(value is not None for value in fields) != 1:
            raise ValueError(
                "give one of {choice: [32, 64]}, {int: [1, 4]}, {float: [0, 0.5]} and "
                "{log: [1e-4, 1e-2]}"
            )
        if self.choice is not None:
            if not self.choice:
                raise ValueError("choice is empty; give at least one value, such as {choice: [32]}")
            return self
        name, (low, high) = self._bounds()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{name} needs two finite numbers, found {low:g} and {high:g}")
        if low >= high:
            raise ValueError(
                f"{name} is [{low:g}, {high:g}]; the first number must be less than the second"
            )
        if name == "log" and low <= 0:
            raise ValueError(
                f"log is [{low:g}, {high:g}]; the first number must be greater than 0, such as "
                f"{high / 1000:g}; for a range from 0, use float"
            )
        return self

    def _bounds(self) -> tuple[str, tuple[float, float]]:
        if self.integers is not None:
            return "int", self.integers
        if self.numbers is not None:
            return "float", self.numbers
        assert self.log is not None  # noqa: S101 - exactly one field is set
        return "log", self.log

    @property
    def extremes(self) -> list[Any]:
        """The choices, or the two bounds of a range."""
        return list(self.choice) if self.choice is not None else list(self._bounds()[1])

    @property
    def probes(self) -> list[Any]:
        """The values to validate before a search: the extremes, and for `float` and `log` also a
        fractional number between them.
        """
        if self.choice is not None or self.integers is not None:
            return self.extremes
        low, high = self.extremes
        return [low, low + (high - low) / math.e, high]


def _as_mapping(value: Any) -> Any:
    """Returns the settings of an automatic search for `auto` or true, any other value unchanged."""
    return {"auto": True} if value in ("auto", True) else value


class TuneSettings(Settings):
    """The hyperparameter search before the training, and its limits. If the config has no `tune`,
    there is no search.
    """

    auto: bool = False
    """Whether the search space follows from the features and the task, which is the default if
    there is no `space`. The first trial uses the values of the config. Another trial replaces these
    values only if it is significantly better."""
    space: dict[str, Range] = Field(
        default={}, examples=[{"train.learning_rate": {"log": [1e-4, 1e-2]}}]
    )
    """The values to choose from, by key of `model` and `train`: `train.learning_rate: {log: [1e-4,
    1e-2]}`, `model.dropout: {float: [0, 0.5]}`, `model.members: {int: [2, 16]}`, `train.batch_size:
    {choice: [32, 64]}`. A trial varies only the keys that its kind of model reads."""
    objective: str | None = None
    """The metric that the search optimizes: `val_loss`, or `val_` and the name of a metric that
    both the Evaluator and training can measure, such as `val_f1` and `val_macro_recall`. Default:
    `val_auc` for two classes, `val_accuracy` for more classes, `val_rmse` for numbers, `val_loss`
    for counts."""
    trials: PositiveInt | None = None
    """The maximum number of trials. Default: 20 if there is a `space` and no `timeout`, otherwise
    no limit."""
    timeout: SomeTime | None = None
    """The maximum duration of the search, such as 20m. Default: 10m if there is neither `trials`
    nor a `space`, otherwise no limit."""
    algorithm: Algorithm = Algorithm.TPE
    """The search algorithm: `tpe`, `random`, `grid` or `hyperband`."""
    prune: bool = True
    """Whether poor trials are pruned, by successive halving over the epochs."""
    parallel: PositiveInt | None = None
    """The number of parallel trials, each in its own process. Only with `parallel: 1` does the same
    seed give the same trials. Default: for the automatic search of an `ensemble` the number of
    cores, at most 4, as far as the memory suffices (2 GiB each); otherwise 1."""
    reuse: bool = False
    """Whether later runs on other data reuse the result of an earlier search. A new search starts
    after a change of the config or the code, and after a drift of the data (`drift`)."""

    @field_validator("algorithm", mode="before")
    @classmethod
    def _is_no_gaussian_process(cls, value: Any) -> Any:
        if value == "gp":
            raise ValueError(
                "gp, Optuna's Gaussian processes, needs PyTorch, which Scopeline does not install; "
                f"supported: {', '.join(Algorithm)}"
            )
        return value

    @model_validator(mode="after")
    def _auto_has_no_space(self) -> TuneSettings:
        if self.auto and self.space:
            raise ValueError("give auto or space, not both")
        return self

    @property
    def is_automatic(self) -> bool:
        """Whether the search space follows from the features and the task."""
        return not self.space

    @property
    def max_trials(self) -> int | None:
        """The maximum number of trials, or None if only the time limits the search."""
        if self.trials is None and self.timeout is None and self.space:
            return DEFAULT_TRIALS
        return self.trials

    @property
    def max_seconds(self) -> float | None:
        """The maximum duration of the search in seconds, or None if only the number of trials
        limits the search.
        """
        if self.trials is None and self.timeout is None and not self.space:
            return DEFAULT_TIMEOUT.total_seconds()
        return None if self.timeout is None else self.timeout.total_seconds()


AnyTune = Annotated[
    TuneSettings,
    BeforeValidator(_as_mapping, json_schema_input_type=Literal["auto"] | TuneSettings),
]
"""The section `tune`: `auto`, or a mapping."""

SEARCH_LIMITS = ("trials", "timeout", "parallel")
"""The keys of TuneSettings that limit a search and do not affect its space or its objective."""
