"""The `run_fn` of the family `control`: it trains and exports a policy.

The policy learns by acting in an environment, or from logged transitions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.errors import ConfigError, DataError, TrainingError, enumerate_names
from trainer_module.export.interface import RawColumn
from trainer_module.export.plain import export_plain
from trainer_module.families import read_data_files, read_data_source
from trainer_module.families.control.environments import (
    Environments,
    EnvironmentSettings,
    Policy,
    SeedsOf,
    Steps,
)
from trainer_module.families.control.family import STRATEGIES
from trainer_module.families.control.learner import Learner
from trainer_module.families.control.measuring import (
    ACTION,
    OBSERVATION,
    VALUES,
    environment_of,
    exported_policy,
    task_of,
)
from trainer_module.families.control.replay import Replay
from trainer_module.families.control.task import ControlTask
from trainer_module.families.control.training import CheckpointLocation, RoundPlan, Training
from trainer_module.families.control.transitions import (
    collect,
    read_transitions,
    write_transitions,
)
from trainer_module.machine import free_memory
from trainer_module.record import make_record
from trainer_module.runtime import WorkerContext, read_run, write_record
from trainer_module.settings import TrainerSettings
from trainer_module.training.checkpoint import CHECKPOINTS_FOLDER
from trainer_module.training.plan import open_strategy

_RANDOM = "random"
"""The name of the uniformly random policy."""
COLLECTED_FILE = "transitions.parquet"
"""The file with the collected episodes in the model run."""
_BYTES_PER_TRANSITION = 32
"""The bytes of a transition without its observations: action, reward, ends and priority."""


def run_fn(fn_args: Any) -> None:
    """Trains a policy and exports the best epoch.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes. Its `custom_config` holds the
        settings and the source of the data; its attribute `runtime` is a `WorkerContext`.

    Raises:
      ConfigError: the strategy is not available for control tasks.
      DataError: the logged transitions cannot be used.
      TrainingError: the environment fails, or the loss is not a number.
    """
    settings, runtime = read_run(fn_args)
    if settings.train.strategy.kind not in STRATEGIES:
        supported = enumerate_names([str(strategy) for strategy in STRATEGIES], "and")
        raise ConfigError(
            f"train.strategy is {settings.train.strategy.kind}, but `task: control` trains in one"
            f" process; supported: {supported}."
        )
    strategy = open_strategy(settings)
    environment, task = environment_of(fn_args.custom_config), task_of(settings)
    instance = environment.open()
    environments, replay = _open_data(
        fn_args, settings, environment, width=instance.width, actions=instance.actions
    )
    rate = settings.train.learning_rate
    assert isinstance(rate, float)  # noqa: S101 - `ControlFamily.problems` checks the type
    learner = Learner(
        strategy,
        settings.model,
        instance.width,
        instance.actions,
        learning_rate=rate,
        target=task.target,
        conservative=0.0 if environments is not None else task.conservative,
    )
    plan = RoundPlan.of(settings, task, environments is not None, strategy.num_replicas_in_sync)
    backup = CheckpointLocation(
        runtime.backup_directory or os.path.join(fn_args.model_run_dir, CHECKPOINTS_FOLDER),
        runtime.backup_steps or settings.train.backup_steps,
        runtime.writes_backup,
    )
    training = Training(
        settings,
        task,
        environment,
        learner,
        replay,
        environments,
        plan,
        backup,
        instance.solved_at,
    )
    writer = tf.summary.create_file_writer(os.path.join(fn_args.model_run_dir, "train"))

    def on_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
        with writer.as_default():
            for name, value in metrics.items():
                tf.summary.scalar(f"epoch_{name}", value, epoch - 1)
        writer.flush()

    started = time.monotonic()
    training.run(on_epoch)
    seconds = time.monotonic() - started
    export(learner.exported(training.best.weights), task, fn_args.serving_model_dir)
    replicas = strategy.num_replicas_in_sync
    record = _describe(settings, runtime, training, plan, learner, len(replay), replicas, seconds)
    write_record(fn_args.model_run_dir, record)


def _open_data(
    fn_args: Any,
    settings: TrainerSettings,
    environment: EnvironmentSettings,
    width: int,
    actions: int,
) -> tuple[Environments | None, Replay]:
    """Returns environments and an empty replay buffer for acting, or None and a filled buffer."""
    task, source = task_of(settings), read_data_source(fn_args.custom_config)
    alpha = task.replay.alpha if settings.model.prioritised else None
    replay_options: dict[str, Any] = {
        "width": width,
        "n_step": settings.model.n_step,
        "discount": task.discount,
        "alpha": alpha,
    }
    if source is not None and source["episodes"] is None:
        count = task.environments
        rows = -(-max(task.replay.size, task.replay.begins) // count) + settings.model.n_step
        _check_memory(rows * count, width)
        environments = Environments(environment, count, settings.train.seed, SeedsOf.TRAINING)
        return environments, Replay(rows, count, **replay_options)
    if source is not None:
        steps = _collect(source, settings, environment, actions)
        write_transitions(steps, os.path.join(fn_args.model_run_dir, COLLECTED_FILE))
    else:
        steps = read_transitions(read_data_files(fn_args.custom_config), width, actions)
    rows = len(steps.actions)
    if rows <= settings.model.n_step:
        raise DataError(
            f"the data has {rows} transitions, but training needs more than"
            f" {settings.model.n_step} (model.n_step)."
        )
    replay = Replay(rows + settings.model.n_step - 1, 1, **replay_options)
    replay.fill(steps)
    return None, replay


def _check_memory(transitions: int, width: int) -> None:
    """Raises TrainingError if a full replay buffer does not fit into the free memory."""
    needed, free = transitions * (2 * 4 * width + _BYTES_PER_TRANSITION), free_memory()
    if needed > free:
        raise TrainingError(
            f"a replay buffer of {transitions:,} transitions with {width:,} numbers per"
            f" observation takes {needed / 1e9:,.1f} GB, but only {free / 1e9:,.1f} GB of memory"
            " are free; lower task.replay.size."
        )


def _collect(
    source: Mapping[str, Any],
    settings: TrainerSettings,
    environment: EnvironmentSettings,
    actions: int,
) -> Steps:
    policy, seed = source["policy"] or _RANDOM, settings.train.seed
    act: Policy
    if policy == _RANDOM:
        random = np.random.default_rng([seed, actions])

        def act(observations: np.ndarray) -> np.ndarray:
            return random.integers(actions, size=len(observations))
    else:
        act = exported_policy(policy)
    exploration = task_of(settings).exploration.final
    return collect(act, environment, int(source["episodes"]), seed, exploration)


def export(network: tf_keras.Model, task: ControlTask, directory: str) -> None:
    """Exports a policy, which maps observations to the values of the actions and the best action.

    Args:
      network: the network, which maps observations, [batch, width], to the values of the actions,
        [batch, actions].
      task: the task of the policy.
      directory: the folder of the SavedModel.
    """
    width = network.input_shape[-1]
    module = tf.Module()
    module.network = network

    def answer(observation: tf.Tensor) -> dict[str, tf.Tensor]:
        values = network(tf.reshape(observation, [-1, width]))
        return {ACTION: tf.argmax(values, axis=1), VALUES: values}

    column = RawColumn(OBSERVATION, OBSERVATION, "float32", is_whole=False, width=width)
    export_plain(module, answer, [column], task, directory)


def _describe(
    settings: TrainerSettings,
    runtime: WorkerContext,
    training: Training,
    plan: RoundPlan,
    learner: Learner,
    transitions: int,
    replicas: int,
    seconds: float,
) -> dict[str, Any]:
    """Returns the record of a training, with the keys of supervised records."""
    progress, best = training.progress, training.best
    steps = learner.steps
    new_steps = max(1, steps - training.resumed_at)
    source = "from episodes" if plan.acted else f"from {transitions:,} transitions"
    note = (
        f"dqn learnt {source}; epoch {best.epoch} of {progress.epoch} had the best policy, with a "
        f"mean return of {best.value:.1f} in the validation episodes"
    )
    return make_record(
        settings,
        runtime,
        seconds,
        seconds / new_steps,
        plan.batch,
        notes=[note, *training.notes],
        replicas=replicas,
        workers=1,
        global_batch_size=plan.batch,
        epochs=progress.epoch,
        best_epoch=best.epoch,
        examples={"train": transitions},
        steps=steps,
        warm_start=None,
        resumed_at_step=training.resumed_at,
        history=progress.history,
    )
