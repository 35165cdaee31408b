"""`task: control`: which environment a policy acts in, and how it learns from acting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from trainer_module.sections import Settings
from trainer_module.settings.tasks import LearningTask, Metric

RETURN = "return"
"""The metric that decides: the mean over episodes of the sum of their rewards."""


class ExplorationSettings(Settings):
    """How often an action is drawn at random: from `initial` in a straight line to `final`."""

    initial: float = Field(default=1.0, ge=0, le=1)
    final: float = Field(default=0.05, ge=0, le=1)
    """Also the share of random actions where `data.policy` collects episodes."""
    share: float = Field(default=0.2, gt=0, le=1)
    """The share of the training after which it is `final`."""

    def at(self, progress: float) -> float:
        """Returns the share of random actions after a share of the training, 0..1."""
        done = min(1.0, progress / self.share)
        return self.initial + done * (self.final - self.initial)


class ReplaySettings(Settings):
    """The transitions that are remembered, and how they come up again."""

    size: PositiveInt = 100_000
    """Transitions; the oldest are forgotten. Logged transitions are all kept."""
    begins: PositiveInt = 1_000
    """Transitions before the first step of the optimizer."""
    ratio: float = Field(default=1.0, gt=0, le=16)
    """Steps of the optimizer for each step of the environment."""
    alpha: float = Field(default=0.6, ge=0, le=1)
    """With `model.prioritised`: the power of an error that it is drawn by; 0 is uniform."""
    beta: float = Field(default=0.4, ge=0, le=1)
    """With `model.prioritised`: the power by which weights make up for that, at the beginning; at
    the end it is 1."""


class TargetSettings(Settings):
    """The network that gives the targets: it follows the one that learns, smoothly or in jumps."""

    every: PositiveInt | None = None
    """Steps of the optimizer between two copies (Mnih et al., 2015)."""
    polyak: float | None = Field(default=None, gt=0, le=1)
    """The share of the difference that each step of the optimizer takes over; default: 0.005, where
    `every` is left out."""

    @model_validator(mode="after")
    def _one_way(self) -> TargetSettings:
        if self.every is not None and self.polyak is not None:
            raise ValueError("every and polyak exclude each other; leave one of them out")
        return self


class ControlTask(LearningTask):
    """`task: control`, or a mapping with these options."""

    kind: Literal["control"]
    family: ClassVar[str] = "control"
    environment: str | None = None
    """`gymnasium:CartPole-v1`, or the import path of a function that makes an environment: where
    a policy is judged that learns from logged transitions. With `data.format: environment` it is
    `data.path`."""
    options: dict[str, Any] = {}
    """Arguments of the environment."""
    discount: float = Field(default=0.99, gt=0, lt=1)
    """How much a reward is worth that comes a step later."""
    episodes: PositiveInt = Field(default=100, ge=2)
    """That a policy is evaluated on, with seeds that no training sees."""
    episode_steps: PositiveInt = 10_000
    """After so many steps an episode is cut off, where the environment does not do so before."""
    environments: PositiveInt = 8
    """Environments that are acted in side by side, in training."""
    exploration: ExplorationSettings = ExplorationSettings()
    replay: ReplaySettings = ReplaySettings()
    target: TargetSettings = TargetSettings()
    conservative: NonNegativeFloat = 1.0
    """Offline: the weight of CQL's term, which keeps values low of actions that no transition has
    taken (Kumar et al., 2020, arXiv:2006.04779)."""

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the mean return."""
        return {RETURN: Metric(has_unit=True)}

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the mean return."""
        return (RETURN,)
