"""Logged transitions: read from Parquet and checked, or collected by a policy and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainer_module.errors import DataError, enumerate_names
from trainer_module.families.control.environments import (
    EnvironmentSettings,
    Policy,
    SeedsOf,
    Steps,
    episode_seed,
    play,
)

COLUMNS = (
    "observation",
    "action",
    "reward",
    "next_observation",
    "terminated",
    "truncated",
)
"""The columns of a file of transitions: lists of numbers, an integer, a number, and booleans."""
_VECTORS = ("observation", "next_observation")


def read_transitions(files: Sequence[str], width: int, actions: int) -> Steps:
    """Returns the transitions of some files, one after another, each [transitions, ...].

    The rows of an episode follow each other. A row counts as truncated if the next row does not
    continue it although the episode has not ended.

    Args:
      files: the paths of Parquet files.
      width: the number of values in an observation of the environment.
      actions: the number of the environment's actions.

    Raises:
      DataError: a column or a row cannot be used; the message names the file.
    """
    parts = [_read(file, width, actions) for file in files]
    steps = Steps(
        *(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Steps))
    )
    if not len(steps.actions):
        raise DataError(f"{', '.join(files)}: there is no transition; each needs a row.")
    goes_on = (steps.next_observations[:-1] == steps.observations[1:]).all(axis=1)
    steps.truncated[:-1] |= ~goes_on & ~steps.terminated[:-1]
    steps.truncated[-1] |= not steps.terminated[-1]
    return steps


def _read(file: str, width: int, actions: int) -> Steps:
    table = _open(file)
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise DataError(
            f"{file} lacks the {'columns' if len(missing) > 1 else 'column'}"
            f" {enumerate_names(missing, 'and')}; right are {enumerate_names(COLUMNS, 'and')}."
        )
    found = {name: _vectors(file, name, table.column(name), width) for name in _VECTORS}
    for name in ("action", "reward", "terminated", "truncated"):
        found[name] = _numbers(file, name, table.column(name))
    action = found["action"]
    wrong = np.flatnonzero((action != np.floor(action)) | (action < 0) | (action >= actions))
    if wrong.size:
        raise DataError(
            f"{file}, row {wrong[0] + 1}: column 'action' is {action[wrong[0]]:g}; the environment"
            f" has the actions 0 to {actions - 1}."
        )
    return Steps(
        found["observation"],
        action.astype(np.int32),
        _as_float32(file, "reward", found["reward"]),
        found["next_observation"],
        found["terminated"] != 0,
        found["truncated"] != 0,
    )


def _open(file: str) -> pa.Table:
    try:
        if "://" not in file:
            return pq.read_table(file, partitioning=None)
        import tensorflow as tf

        with tf.io.gfile.GFile(file, "rb") as remote:
            return pq.read_table(pa.BufferReader(remote.read()))
    except (OSError, pa.ArrowException) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(
            f"{file} is no complete Parquet file ({lines[0].rstrip('.')}): copy or write it again."
        ) from None


def _vectors(file: str, name: str, column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Returns a column of equally long lists of numbers as an array, [rows, width] float32."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list or pa.types.is_fixed_size_list(kind)) or not _is_number(kind.value_type):
        raise DataError(f"{file}: column {name!r} holds {kind}; right are lists of numbers.")
    rows = column.combine_chunks()
    lengths = np.asarray(rows.value_lengths().fill_null(0) if len(rows) else [])
    wrong = np.flatnonzero(lengths != width)
    if wrong.size:
        raise DataError(
            f"{file}, row {wrong[0] + 1}: column {name!r} has {lengths[wrong[0]]} numbers; an"
            f" observation of the environment has {width}."
        )
    numbers = np.asarray(rows.flatten().cast(pa.float64(), safe=False)).reshape(-1, width)
    return _as_float32(file, name, numbers)


def _as_float32(file: str, name: str, numbers: np.ndarray) -> np.ndarray:
    """Returns numbers as float32 after checking that they are still finite."""
    with np.errstate(over="ignore"):
        return _finite(file, name, numbers.astype(np.float32))


def _numbers(file: str, name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Returns a column of numbers as an array, [rows] float64."""
    if not (_is_number(column.type) or pa.types.is_boolean(column.type)):
        raise DataError(f"{file}: column {name!r} holds {column.type}; right are numbers.")
    rows = column.combine_chunks()
    if rows.null_count:
        row = int(np.flatnonzero(np.asarray(rows.is_null()))[0])
        raise DataError(f"{file}, row {row + 1}: column {name!r} is empty; right is a number.")
    numbers = rows.cast(pa.int8()) if pa.types.is_boolean(rows.type) else rows
    return _finite(file, name, np.asarray(numbers, float))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _finite(file: str, name: str, values: np.ndarray) -> np.ndarray:
    wrong = np.argwhere(~np.isfinite(values))
    if wrong.size:
        found = values[tuple(wrong[0])]
        raise DataError(
            f"{file}, row {wrong[0][0] + 1}: column {name!r} holds {found}; right are finite"
            " numbers."
        )
    return values


def collect(
    policy: Policy,
    settings: EnvironmentSettings,
    episodes: int,
    seed: int,
    exploration: float = 0.0,
) -> Steps:
    """Plays seeded episodes and returns their transitions in the order of the episodes.

    Args:
      policy: the policy that chooses the actions.
      settings: the path and the arguments of the environment.
      episodes: the number of episodes.
      seed: the seed of the episodes and of random actions.
      exploration: the share of random actions.

    Raises:
      TrainingError: the environment fails.
    """
    random = np.random.default_rng([seed, SeedsOf.COLLECTION])
    actions = settings.open().actions
    rows: list[list[tuple[Any, ...]]] = [[] for _ in range(episodes)]

    def choose(observations: np.ndarray) -> np.ndarray:
        drawn = random.integers(actions, size=len(observations))
        return np.where(random.random(len(observations)) < exploration, drawn, policy(observations))

    def see(
        episode: int, observation: np.ndarray, action: int, found: tuple[Any, float, bool, bool]
    ) -> None:
        following, reward, terminated, truncated = found
        rows[episode].append((observation, action, reward, following, terminated, truncated))

    seeds = [episode_seed(seed, SeedsOf.COLLECTION, number) for number in range(episodes)]
    play(choose, settings, seeds, see)
    columns = [
        np.array(values) for values in zip(*(row for one in rows for row in one), strict=True)
    ]
    observations, taken, rewards, following, terminated, truncated = columns
    return Steps(
        observations,
        taken.astype(np.int32),
        rewards.astype(np.float32),
        following,
        terminated,
        truncated,
    )


def write_transitions(steps: Steps, file: str) -> None:
    """Writes transitions in the format of `read_transitions`."""
    columns = {
        "observation": list(steps.observations),
        "action": steps.actions.astype(np.int64),
        "reward": steps.rewards,
        "next_observation": list(steps.next_observations),
        "terminated": steps.terminated,
        "truncated": steps.truncated,
    }
    pq.write_table(pa.table(columns), file)
