"""The family of control tasks: its config checks, its training and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families import Family
from trainer_module.families.control.environments import PREFIX, EnvironmentSettings
from trainer_module.settings.model import LEARNERS
from trainer_module.strategies.base import Strategy

_ROOM = "trainer_module.families.control"
_TRAIN_KEYS = (
    *("steps", "batch_size", "learning_rate", "strategy", "seed", "retries", "backup_steps"),
    "early_stopping",
)
STRATEGIES = (Strategy.AUTO, Strategy.DEFAULT, Strategy.ONE_DEVICE, Strategy.MIRRORED)
"""The strategies that can share the learner's steps, with acting in a single process."""

Problem = tuple[str, str]


class ControlFamily(Family):
    """The family that learns by acting in an environment or from logged transitions, measured by
    returns.
    """

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
        """Returns the import path of a user's environment, if the config has one."""
        key, path = _environment_of(config)
        return {key: path} if "." in path and not path.startswith(PREFIX) else {}

    def problems(self, config: Any) -> Iterator[Problem]:
        """Yields contradictions in the model, the training, the data and the environment."""
        if config.model.kind not in LEARNERS:
            yield "model.kind", f"found {config.model.kind!r}; a task control learns by dqn"
            return
        yield from _model_problems(config)
        yield from _training_problems(config)
        found = list(_data_problems(config))
        yield from found
        if not found:
            yield from _environment_problems(config)


def _model_problems(config: Any) -> Iterator[Problem]:
    if config.model.dueling and not config.trainer_settings.model.hidden_units:
        yield (
            "model.hidden_units",
            "found none, but dueling needs a layer before the value and before the advantages;"
            " give one, or set dueling: false",
        )


def _training_problems(config: Any) -> Iterator[Problem]:
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
            found = repr(value) if isinstance(value, str) else "a mapping"
            yield f"train.{key}", f"found {found}; a task control takes a number"


def _data_problems(config: Any) -> Iterator[Problem]:
    data, task = config.data, config.target
    if data.format not in ("environment", "parquet"):
        yield (
            "data.format",
            f"found {data.format!r}; a task control learns in an environment, or from transitions"
            " in parquet",
        )
    elif data.format == "environment":
        if task.environment is not None:
            yield "task.environment", "data.path already names the environment; remove this key"
        if data.policy is not None and data.episodes is None:
            yield "data.policy", "it needs data.episodes, the number of episodes to collect"
    elif task.environment is None:
        yield (
            "task.environment",
            "this key is missing; a policy that learns from transitions is evaluated in an"
            f" environment, such as {PREFIX}CartPole-v1",
        )


def _environment_of(config: Any) -> tuple[str, str]:
    """Returns the key that names the environment, and its path; empty if it is missing."""
    if config.data.format == "environment":
        return "data.path", config.data.path
    return "task.environment", config.target.environment or ""


def _environment_problems(config: Any) -> Iterator[Problem]:
    """Yields problems of a registered environment, and of other paths; user code is not run."""
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
