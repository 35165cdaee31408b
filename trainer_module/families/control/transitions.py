"""Logged transitions: reads them from Parquet files, or collects and writes them."""

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
"""The columns of a file of transitions.

The observations are lists of numbers, the action is an integer, and the reward is a number."""
_VECTORS = ("observation", "next_observation")


def read_transitions(files: Sequence[str], width: int, actions: int) -> Steps:
    """Returns the transitions of all files in order, [transitions, ...] each.

    The rows of an episode must follow each other. If a row neither ends its episode nor is
    continued by the next row, the row counts as truncated.

    Args:
      files: the paths of Parquet files.
      width: the number of values in an observation of the environment.
      actions: the number of the environment's actions.

    Raises:
      DataError: a column or a row cannot be used; the message names the file.
    """
    parts = [_read(file, width, actions) for file in files]
    steps = Steps(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Steps))
    )
    if not len(steps.actions):
        raise DataError(f"{', '.join(files)}: no file has a row; write a row per transition.")
    is_continued = (steps.next_observations[:-1] == steps.observations[1:]).all(axis=1)
    steps.truncated[:-1] |= ~is_continued & ~steps.terminated[:-1]
    steps.truncated[-1] |= not steps.terminated[-1]
    return steps


def _read(file: str, width: int, actions: int) -> Steps:
    table = _open(file)
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise DataError(
            f"{file} lacks the {'columns' if len(missing) > 1 else 'column'}"
            f" {enumerate_names(missing, 'and')}; a file of transitions has the columns"
            f" {enumerate_names(COLUMNS, 'and')}."
        )
    columns = {name: _vectors(file, name, table.column(name), width) for name in _VECTORS}
    for name in ("action", "reward", "terminated", "truncated"):
        columns[name] = _numbers(file, name, table.column(name))
    action = columns["action"]
    invalid = np.flatnonzero((action != np.floor(action)) | (action < 0) | (action >= actions))
    if invalid.size:
        raise DataError(
            f"{file}, row {invalid[0] + 1}: column 'action' is {action[invalid[0]]:g}; the"
            f" environment has the actions 0 to {actions - 1}."
        )
    return Steps(
        columns["observation"],
        action.astype(np.int32),
        _as_float32(file, "reward", columns["reward"]),
        columns["next_observation"],
        columns["terminated"] != 0,
        columns["truncated"] != 0,
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
            f"{file} is not a complete Parquet file ({lines[0].rstrip('.')}); copy or write the"
            " file again."
        ) from None


def _vectors(file: str, name: str, column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Returns a column of equally long lists of numbers as an array, [rows, width] float32."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list or pa.types.is_fixed_size_list(kind)) or not _is_number(kind.value_type):
        raise DataError(f"{file}: column {name!r} has type {kind}; expected: lists of numbers.")
    rows = column.combine_chunks()
    lengths = np.asarray(rows.value_lengths().fill_null(0) if len(rows) else [])
    invalid = np.flatnonzero(lengths != width)
    if invalid.size:
        raise DataError(
            f"{file}, row {invalid[0] + 1}: column {name!r} has {lengths[invalid[0]]} numbers; an"
            f" observation of the environment has {width}."
        )
    numbers = np.asarray(rows.flatten().cast(pa.float64(), safe=False)).reshape(-1, width)
    return _as_float32(file, name, numbers)


def _as_float32(file: str, name: str, numbers: np.ndarray) -> np.ndarray:
    """Returns numbers as float32; raises DataError if a number is not finite in float32."""
    with np.errstate(over="ignore"):
        return _finite(file, name, numbers.astype(np.float32))


def _numbers(file: str, name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Returns a column of numbers as an array, [rows] float64."""
    if not (_is_number(column.type) or pa.types.is_boolean(column.type)):
        raise DataError(f"{file}: column {name!r} has type {column.type}; expected: numbers.")
    rows = column.combine_chunks()
    if rows.null_count:
        row = int(np.flatnonzero(np.asarray(rows.is_null()))[0])
        raise DataError(f"{file}, row {row + 1}: column {name!r} is empty; expected: a number.")
    numbers = rows.cast(pa.int8()) if pa.types.is_boolean(rows.type) else rows
    return _finite(file, name, np.asarray(numbers, float))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _finite(file: str, name: str, values: np.ndarray) -> np.ndarray:
    invalid = np.argwhere(~np.isfinite(values))
    if invalid.size:
        value = values[tuple(invalid[0])]
        raise DataError(
            f"{file}, row {invalid[0][0] + 1}: column {name!r} holds {value}; expected: a finite"
            " number."
        )
    return values


def collect(
    policy: Policy,
    settings: EnvironmentSettings,
    episodes: int,
    seed: int,
    exploration: float = 0.0,
) -> Steps:
    """Plays episodes, and returns their transitions in the order of the episodes.

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

    def store(
        episode: int, observation: np.ndarray, action: int, result: tuple[Any, float, bool, bool]
    ) -> None:
        next_observation, reward, terminated, truncated = result
        rows[episode].append((observation, action, reward, next_observation, terminated, truncated))

    seeds = [episode_seed(seed, SeedsOf.COLLECTION, number) for number in range(episodes)]
    play(choose, settings, seeds, store)
    all_rows = (row for episode in rows for row in episode)
    columns = [np.array(values) for values in zip(*all_rows, strict=True)]
    observations, taken, rewards, next_observations, terminated, truncated = columns
    return Steps(
        observations,
        taken.astype(np.int32),
        rewards.astype(np.float32),
        next_observations,
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
