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
    """The share of random actions at the start of the training."""
    final: float = Field(default=0.05, ge=0, le=1)
    """The share of random actions at the end. `data.policy` collects episodes with this share, too.
    """
    share: float = Field(default=0.2, gt=0, le=1)
    """The share of the training's steps after which `final` is reached."""

    def at(self, progress: float) -> float:
        """Returns the share of random actions.

        Args:
          progress: the completed share of the training, 0 to 1.
        """
        completed = min(1.0, progress / self.share)
        return self.initial + completed * (self.final - self.initial)


class ReplaySettings(Settings):
    """The settings of the replay buffer."""

    size: PositiveInt = 100_000
    """The number of stored transitions; new transitions overwrite the oldest transitions. Logged
    transitions are all stored.
    """
    begins: PositiveInt = 1_000
    """The number of stored transitions after which the optimizer begins."""
    ratio: float = Field(default=1.0, gt=0, le=16)
    """The number of optimizer steps per environment step."""
    alpha: float = Field(default=0.6, ge=0, le=1)
    """The power of the errors in prioritised sampling (`model.prioritised`); 0 is uniform sampling.
    """
    beta: float = Field(default=0.4, ge=0, le=1)
    """The initial power of the importance weights in prioritised sampling (`model.prioritised`),
    which rises to 1 at the end of the training.
    """


class TargetSettings(Settings):
    """The updates of the target network: moving averages or copies of the Q-network."""

    every: PositiveInt | None = None
    """The number of optimizer steps between two copies (Mnih et al., 2015)."""
    polyak: float | None = Field(default=None, gt=0, le=1)
    """The share by which each optimizer step moves the target network towards the Q-network.
    Default: 0.005 if `every` is not set.
    """

    @model_validator(mode="after")
    def _has_one_key(self) -> TargetSettings:
        if self.every is not None and self.polyak is not None:
            raise ValueError("found both every and polyak; remove one of the two keys")
        return self


class ControlTask(LearningTask):
    """The settings of `task: control`: a policy learns to act in an environment."""

    kind: Literal["control"]
    family: ClassVar[str] = "control"
    environment: str | None = None
    """The environment in which a policy is evaluated, if the policy learns from logged transitions.

    Its value is a name such as `gymnasium:CartPole-v1`, or the import path of a function that
    creates an environment. If `data.format` is `environment`, `data.path` names the environment.
    """
    options: dict[str, Any] = {}
    """The arguments of the environment."""
    discount: float = Field(default=0.99, gt=0, lt=1)
    """The discount factor of rewards per step."""
    episodes: PositiveInt = Field(default=100, ge=2)
    """The number of evaluation episodes, whose seeds are not used in training."""
    episode_steps: PositiveInt = 10_000
    """The maximum number of steps of an episode; longer episodes are truncated."""
    environments: PositiveInt = 8
    """The number of environments in which training acts at the same time."""
    exploration: ExplorationSettings = ExplorationSettings()
    replay: ReplaySettings = ReplaySettings()
    target: TargetSettings = TargetSettings()
    conservative: NonNegativeFloat = 1.0
    """The weight of conservative Q-learning, which lowers the values of actions that are not in the
    logged transitions (Kumar et al., 2020, arXiv:2006.04779).
    """

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the mean return as the only metric."""
        return {RETURN: Metric(has_unit=True)}

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the name of the mean return."""
        return (RETURN,)
