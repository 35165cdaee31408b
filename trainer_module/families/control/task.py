"""The settings of `task: control`: the environment, the exploration, the replay and the targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from trainer_module.sections import Settings
from trainer_module.settings.tasks import LearningTask, Metric

RETURN = "return"
"""The name of the main metric: the mean sum of rewards per episode."""


class ExplorationSettings(Settings):
    """The share of random actions, which falls linearly from `initial` to `final`."""

    initial: float = Field(default=1.0, ge=0, le=1)
    final: float = Field(default=0.05, ge=0, le=1)
    """The final share; also the share of random actions where `data.policy` collects episodes."""
    share: float = Field(default=0.2, gt=0, le=1)
    """The share of the training after which `final` is reached."""

    def at(self, progress: float) -> float:
        """Returns the share of random actions after a share of the training, 0..1."""
        done = min(1.0, progress / self.share)
        return self.initial + done * (self.final - self.initial)


class ReplaySettings(Settings):
    """The settings of the replay buffer."""

    size: PositiveInt = 100_000
    """The number of stored transitions; the oldest are overwritten. Logged transitions are all
    kept.
    """
    begins: PositiveInt = 1_000
    """The number of transitions before the first step of the optimizer."""
    ratio: float = Field(default=1.0, gt=0, le=16)
    """The number of optimizer steps per environment step."""
    alpha: float = Field(default=0.6, ge=0, le=1)
    """The power of errors in sampling with `model.prioritised`; 0 is uniform."""
    beta: float = Field(default=0.4, ge=0, le=1)
    """The initial power of the importance weights with `model.prioritised`; it rises to 1 at the
    end.
    """


class TargetSettings(Settings):
    """The updates of the target network: by moving average or by copies at intervals."""

    every: PositiveInt | None = None
    """The number of optimizer steps between two copies (Mnih et al., 2015)."""
    polyak: float | None = Field(default=None, gt=0, le=1)
    """The share by which each optimizer step moves the target network; default: 0.005 without
    `every`.
    """

    @model_validator(mode="after")
    def _one_way(self) -> TargetSettings:
        if self.every is not None and self.polyak is not None:
            raise ValueError("every and polyak exclude each other; leave one of them out")
        return self


class ControlTask(LearningTask):
    """The settings of `task: control`; the task may also be given without options."""

    kind: Literal["control"]
    family: ClassVar[str] = "control"
    environment: str | None = None
    """The environment that evaluates a policy that is learnt from logged transitions.

    `gymnasium:CartPole-v1`, or the import path of a function that creates an environment. With
    `data.format: environment`, use `data.path` instead.
    """
    options: dict[str, Any] = {}
    """Arguments of the environment."""
    discount: float = Field(default=0.99, gt=0, lt=1)
    """The discount factor of a reward per step."""
    episodes: PositiveInt = Field(default=100, ge=2)
    """The number of evaluation episodes, whose seeds are not used in training."""
    episode_steps: PositiveInt = 10_000
    """The number of steps after which an episode is truncated, unless the environment truncates it
    earlier.
    """
    environments: PositiveInt = 8
    """The number of environments side by side in training."""
    exploration: ExplorationSettings = ExplorationSettings()
    replay: ReplaySettings = ReplaySettings()
    target: TargetSettings = TargetSettings()
    conservative: NonNegativeFloat = 1.0
    """The weight of CQL's term for logged transitions, which lowers the values of actions that are
    not in the data (Kumar et al., 2020, arXiv:2006.04779).
    """

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the mean return as the only metric."""
        return {RETURN: Metric(has_unit=True)}

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the name of the mean return."""
        return (RETURN,)
