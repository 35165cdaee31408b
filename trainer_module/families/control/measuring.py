"""The evaluation of an exported policy by its returns, in episodes that training has not played."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.families import read_data_source
from trainer_module.families.control.environments import (
    EnvironmentSettings,
    Policy,
    SeedsOf,
    episode_seed,
    play,
)
from trainer_module.families.control.task import RETURN, ControlTask
from trainer_module.families.measured import Estimate, Measured
from trainer_module.settings import TrainerSettings

OBSERVATION, ACTION, VALUES = "observation", "action", "q_values"
"""The names of the input and the outputs of an exported policy."""
DRAWS = 2_000
"""The number of bootstrap resamples of the episodes."""
WORST = 10
"""The number of episodes with the lowest returns that are reported."""
_GOLDEN_ROWS = 100
"""The maximum number of golden rows."""


def task_of(settings: TrainerSettings) -> ControlTask:
    """Returns the control task of the settings."""
    task = settings.target
    assert isinstance(task, ControlTask)  # noqa: S101 - only control tasks call this code
    return task


def environment_of(custom_config: Mapping[str, Any]) -> EnvironmentSettings:
    """Returns the environment in which the policy is evaluated."""
    task = task_of(TrainerSettings.from_custom_config(custom_config))
    source = read_data_source(custom_config)
    path = source["path"] if source else task.environment
    return EnvironmentSettings(str(path), task.options, task.episode_steps)


def exported_policy(folder: Path | str) -> Policy:
    """Returns the policy of an exported model, which chooses the action with the highest value.

    Raises:
      TrainingError: the folder does not contain a policy.
    """
    try:
        signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
        width = signature.structured_input_signature[1][OBSERVATION].shape
    except (OSError, KeyError) as error:
        raise TrainingError(
            f"{folder} does not contain a policy ({type(error).__name__}); give the folder of a"
            " version that a pipeline with `task: control` has pushed."
        ) from error

    def act(observations: np.ndarray) -> np.ndarray:
        inputs = tf.constant(observations if width.rank == 2 else observations[:, 0], tf.float32)
        actions: np.ndarray = signature(**{OBSERVATION: inputs})[ACTION].numpy()
        return actions

    return act


def measure(folder: Path, custom_config: Mapping[str, Any]) -> Measured:
    """Plays the evaluation episodes, and returns the mean return with its bootstrap resamples.

    All policies play the same seeds and use the same resamples, so that the Evaluator can compare
    two policies in pairs of episodes.

    Raises:
      TrainingError: the environment fails.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    count, seed = task_of(settings).episodes, settings.train.seed
    seeds = [episode_seed(seed, SeedsOf.EVALUATION, number) for number in range(count)]
    played = play(exported_policy(folder), environment_of(custom_config), seeds)
    drawn = np.random.default_rng(seed).integers(count, size=(DRAWS, count))
    worst = np.argsort(played.returns, kind="stable")[:WORST]
    worst_episodes = [
        {
            "seed": int(played.seeds[index]),
            "return": float(played.returns[index]),
            "steps": int(played.lengths[index]),
        }
        for index in worst
    ]
    returns = ", ".join(
        f"{episode['return']:g} (seed {episode['seed']})" for episode in worst_episodes
    )
    return Measured(
        {RETURN: Estimate(float(played.returns.mean()), played.returns[drawn].mean(axis=1))},
        notes=(f"the lowest returns of the {count} evaluation episodes are {returns}",),
        details={"worst_episodes": worst_episodes},
    )


def golden_rows(
    folder: Path, custom_config: Mapping[str, Any]
) -> list[tuple[str, dict[str, list[float]]]]:
    """Returns the first observations of an evaluation episode of the policy, with descriptions.

    Raises:
      TrainingError: the environment fails.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    seed = episode_seed(settings.train.seed, SeedsOf.EVALUATION, 0)
    observations: list[np.ndarray] = []
    play(
        exported_policy(folder),
        environment_of(custom_config),
        [seed],
        lambda _, observation, *__: observations.append(observation),
    )
    return [
        (f"step {step} of the episode with seed {seed}", {OBSERVATION: observation.tolist()})
        for step, observation in enumerate(observations[:_GOLDEN_ROWS], 1)
    ]
