"""The family of control tasks: its config checks, its training and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families import Family
from trainer_module.families.control.environments import PREFIX, EnvironmentSettings
from trainer_module.settings.model import LEARNERS
from trainer_module.strategies.base import Strategy

_PACKAGE = "trainer_module.families.control"
_TRAIN_KEYS = (
    *("steps", "batch_size", "learning_rate", "strategy", "seed", "retries", "backup_steps"),
    "early_stopping",
)
STRATEGIES = (Strategy.AUTO, Strategy.DEFAULT, Strategy.ONE_DEVICE, Strategy.MIRRORED)
"""The supported strategies; they train in a single process, which also acts."""

Problem = tuple[str, str]
"""The path of a key in the config, and a message."""


class ControlFamily(Family):
    """The family whose policies learn by acting in an environment, or from logged transitions.

    Policies are measured by their returns in an environment.
    """

    reads: ClassVar[frozenset[str]] = frozenset(
        {
            *(f"model.{key}" for key in ("kind", "hidden_units", *LEARNERS["dqn"].reads)),
            *(f"train.{key}" for key in _TRAIN_KEYS),
            *("data.episodes", "data.policy"),
        }
    )
    run_fn = "trainer_module.control_trainer.run_fn"
    measure = f"{_PACKAGE}.measuring.measure"
    golden_rows = f"{_PACKAGE}.measuring.golden_rows"

    def own_code(self, config: Any) -> dict[str, str]:
        """Returns the import path of the user's environment by its key, or an empty dictionary."""
        key, path = _environment_path(config)
        return {key: path} if "." in path and not path.startswith(PREFIX) else {}

    def problems(self, config: Any) -> Iterator[Problem]:
        """Yields contradictions in the model, the training, the data and the environment."""
        if config.model.kind not in LEARNERS:
            yield "model.kind", f"found {config.model.kind!r}; `task: control` needs dqn"
            return
        yield from _model_problems(config)
        yield from _training_problems(config)
        data_problems = list(_data_problems(config))
        yield from data_problems
        if not data_problems:
            yield from _environment_problems(config)


def _model_problems(config: Any) -> Iterator[Problem]:
    if config.model.dueling and not config.trainer_settings.model.hidden_units:
        yield (
            "model.hidden_units",
            "found no layer, but model.dueling needs at least one; give a layer, such as [64], or"
            " set model.dueling: false",
        )


def _training_problems(config: Any) -> Iterator[Problem]:
    train = config.train
    if train.strategy.kind not in STRATEGIES:
        supported = enumerate_names([str(kind) for kind in STRATEGIES], "or")
        yield (
            "train.strategy",
            f"found {train.strategy.kind}; `task: control` trains in one process; set {supported}",
        )
    settings = config.trainer_settings.train
    begins = config.target.replay.begins
    is_online = config.data.format == "environment" and config.data.episodes is None
    if is_online and isinstance(settings.steps, int) and settings.steps <= begins:
        yield (
            "train.steps",
            f"found {settings.steps:,}, but learning begins after {begins:,} transitions; give"
            " more steps, or a smaller task.replay.begins",
        )
    for key, number in (("steps", int), ("batch_size", int), ("learning_rate", float)):
        value = getattr(settings, key)
        if not isinstance(value, number):
            content = repr(value) if isinstance(value, str) else "a mapping"
            yield f"train.{key}", f"found {content}; `task: control` needs a number"


def _data_problems(config: Any) -> Iterator[Problem]:
    data, task = config.data, config.target
    if data.format not in ("environment", "parquet"):
        yield (
            "data.format",
            f"found {data.format!r}; `task: control` needs environment, or parquet for logged"
            " transitions",
        )
    elif data.format == "environment":
        if task.environment is not None:
            yield "task.environment", "data.path already names the environment; remove this key"
        if data.policy is not None and data.episodes is None:
            yield "data.policy", "add data.episodes, the number of episodes to collect"
    elif task.environment is None:
        yield (
            "task.environment",
            "this key is missing; name the environment in which the policy is evaluated, such as"
            f" {PREFIX}CartPole-v1",
        )


def _environment_path(config: Any) -> tuple[str, str]:
    """Returns the key that names the environment, and its value, or "" if the key is missing."""
    if config.data.format == "environment":
        return "data.path", config.data.path
    return "task.environment", config.target.environment or ""


def _environment_problems(config: Any) -> Iterator[Problem]:
    """Yields the problems of the environment; the user's own environment is not opened."""
    task, (key, path) = config.target, _environment_path(config)
    if path.startswith(PREFIX):
        try:
            EnvironmentSettings(path, task.options, task.episode_steps).open()
        except TrainingError as error:
            yield key, str(error).rstrip(".")
    elif "." not in path:
        yield (
            key,
            f"found {path!r}; give {PREFIX}NAME, such as {PREFIX}CartPole-v1, or the import path"
            " of a function that creates an environment",
        )
