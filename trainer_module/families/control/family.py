"""`task: control`: its settings, what it needs of a config, and by which code it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families import Family
from trainer_module.families.control.environments import PREFIX, EnvironmentSettings
from trainer_module.sections import Settings
from trainer_module.settings.model import LEARNERS
from trainer_module.settings.tasks import LearningTask, Metric
from trainer_module.strategies.base import Strategy

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
        """The share of random actions after a share of the training, 0..1."""
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
        """The mean return."""
        return {RETURN: Metric(has_unit=True)}

    def usual_metrics(self) -> tuple[str, ...]:
        """The mean return."""
        return (RETURN,)


_ROOM = "trainer_module.families.control"
_TRAIN_KEYS = (
    *("steps", "batch_size", "learning_rate", "strategy", "seed", "retries", "backup_steps"),
    "early_stopping",
)
STRATEGIES = (Strategy.AUTO, Strategy.DEFAULT, Strategy.ONE_DEVICE, Strategy.MIRRORED)
"""Those by which the learner's steps can be shared: one process acts."""

Problem = tuple[str, str]


class ControlFamily(Family):
    """Acts in an environment, or learns from logged transitions, and is judged by its returns."""

    reads: ClassVar[frozenset[str]] = frozenset(
        {
            *(f"model.{key}" for key in ("kind", "hidden_units", *LEARNERS["dqn"].reads)),
            *(f"train.{key}" for key in _TRAIN_KEYS),
            *("data.episodes", "data.policy"),
        }
    )
    run_fn = "trainer_module.control_trainer.run_fn"
    measure = f"{_ROOM}.measuring.measure"
    golden_rows = f"{_ROOM}.measuring.golden_rows"

    def own_code(self, config: Any) -> dict[str, str]:
        """An environment that is no registered one."""
        key, path = _environment_of(config)
        return {key: path} if "." in path and not path.startswith(PREFIX) else {}

    def problems(self, config: Any) -> Iterator[Problem]:
        """What is wrong with the model, the training, the data and the environment."""
        if config.model.kind not in LEARNERS:
            yield "model.kind", f"found {config.model.kind!r}; a task control learns by dqn"
            return
        yield from _of_the_model(config)
        yield from _of_the_training(config)
        found = list(_of_the_data(config))
        yield from found
        if not found:
            yield from _of_the_environment(config)


def _of_the_model(config: Any) -> Iterator[Problem]:
    if config.model.dueling and not config.trainer_settings.model.hidden_units:
        yield (
            "model.hidden_units",
            "found none, but dueling needs a layer before the value and before the advantages;"
            " give one, or set dueling: false",
        )


def _of_the_training(config: Any) -> Iterator[Problem]:
    train = config.train
    if train.strategy.kind not in STRATEGIES:
        able = enumerate_names([str(kind) for kind in STRATEGIES], "or")
        yield (
            "train.strategy",
            f"found {train.strategy.kind}; a task control trains in one process, by {able}",
        )
    settings = config.trainer_settings.train
    begins = config.target.replay.begins
    online = config.data.format == "environment" and config.data.episodes is None
    if online and isinstance(settings.steps, int) and settings.steps <= begins:
        yield (
            "train.steps",
            f"found {settings.steps:,}, but learning begins after {begins:,} transitions; give"
            " more, or a smaller task.replay.begins",
        )
    for key, right in (("steps", int), ("batch_size", int), ("learning_rate", float)):
        value = getattr(settings, key)
        if not isinstance(value, right):
            yield f"train.{key}", f"found {value!r}; a task control takes a number"


def _of_the_data(config: Any) -> Iterator[Problem]:
    data, task = config.data, config.target
    if data.format not in ("environment", "parquet"):
        yield (
            "data.format",
            f"found {data.format!r}; a task control learns in an environment, or from transitions"
            " in parquet",
        )
    elif data.format == "environment":
        if task.environment is not None:
            yield "task.environment", "it is data.path here; leave it out"
        if data.policy is not None and data.episodes is None:
            yield "data.policy", "it needs data.episodes, which it is to collect"
    elif task.environment is None:
        yield (
            "task.environment",
            "this key is missing; a policy that learns from transitions is judged in an"
            f" environment, such as {PREFIX}CartPole-v1",
        )


def _environment_of(config: Any) -> tuple[str, str]:
    """The key that names the environment, and its path; empty where it is missing."""
    if config.data.format == "environment":
        return "data.path", config.data.path
    return "task.environment", config.target.environment or ""


def _of_the_environment(config: Any) -> Iterator[Problem]:
    """Makes one that is registered, which takes no code of the user's."""
    task, (key, path) = config.target, _environment_of(config)
    if path.startswith(PREFIX):
        try:
            EnvironmentSettings(path, task.options, task.episode_steps).open()
        except TrainingError as error:
            yield key, str(error).rstrip(".")
    elif "." not in path:
        yield (
            key,
            f"found {path!r}; right is {PREFIX}NAME, such as {PREFIX}CartPole-v1, or the import"
            " path of a function that makes an environment",
        )
