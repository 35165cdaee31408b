"""The evaluation of an exported policy: its returns over seeded episodes outside of training."""

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
"""The names of a policy's input and outputs."""
DRAWS = 2_000
"""The number of bootstrap resamples of the episodes."""
WORST = 10
"""The number of worst episodes that are listed."""
_GOLDEN_ROWS = 100


def task_of(settings: TrainerSettings) -> ControlTask:
    """Returns the control task of the settings."""
    task = settings.target
    assert isinstance(task, ControlTask)  # noqa: S101 - the family's code is called for no other
    return task


def environment_of(custom_config: Mapping[str, Any]) -> EnvironmentSettings:
    """Returns the environment of the evaluation, and of the training if it acts."""
    task = task_of(TrainerSettings.from_custom_config(custom_config))
    source = read_data_source(custom_config)
    path = source["path"] if source else task.environment
    return EnvironmentSettings(str(path), task.options, task.episode_steps)


def exported_policy(folder: Path | str) -> Policy:
    """Returns the policy of an exported model, which chooses the action with the highest value.

    Raises:
      TrainingError: the folder does not hold a policy.
    """
    try:
        answer = tf.saved_model.load(str(folder)).signatures["serving_default"]
        width = answer.structured_input_signature[1][OBSERVATION].shape
    except (OSError, KeyError) as error:
        raise TrainingError(
            f"{folder} holds no policy ({type(error).__name__}): right is the folder of a version"
            " that a task control has pushed."
        ) from error

    def act(observations: np.ndarray) -> np.ndarray:
        given = tf.constant(observations if width.rank == 2 else observations[:, 0], tf.float32)
        found: np.ndarray = answer(**{OBSERVATION: given})[ACTION].numpy()
        return found

    return act


def measure(folder: Path, custom_config: Mapping[str, Any]) -> Measured:
    """Plays the evaluation episodes and returns the mean return with its bootstrap resamples.

    Two policies play the same seeds and use the same resamples, so that the quality gate compares
    them in pairs.

    Raises:
      TrainingError: the environment fails.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    count, seed = task_of(settings).episodes, settings.train.seed
    seeds = [episode_seed(seed, SeedsOf.EVALUATION, number) for number in range(count)]
    played = play(exported_policy(folder), environment_of(custom_config), seeds)
    drawn = np.random.default_rng(seed).integers(count, size=(DRAWS, count))
    worst = np.argsort(played.returns, kind="stable")[:WORST]
    listed = [
        {
            "seed": int(played.seeds[place]),
            "return": float(played.returns[place]),
            "steps": int(played.lengths[place]),
        }
        for place in worst
    ]
    named = ", ".join(f"{one['return']:g} (seed {one['seed']})" for one in listed)
    return Measured(
        {RETURN: Estimate(float(played.returns.mean()), played.returns[drawn].mean(axis=1))},
        notes=(f"the {len(listed)} worst of {count} episodes returned {named}",),
        details={"worst_episodes": listed},
    )


def golden_rows(
    folder: Path, custom_config: Mapping[str, Any]
) -> list[tuple[str, dict[str, list[float]]]]:
    """Returns the observations of an episode of the policy, which test every serving interface.

    Raises:
      TrainingError: the environment fails.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    seed = episode_seed(settings.train.seed, SeedsOf.EVALUATION, 0)
    seen: list[np.ndarray] = []
    play(
        exported_policy(folder),
        environment_of(custom_config),
        [seed],
        lambda _, observation, *__: seen.append(observation),
    )
    return [
        (f"step {step + 1} of the episode with seed {seed}", {OBSERVATION: found.tolist()})
        for step, found in enumerate(seen[:_GOLDEN_ROWS])
    ]
