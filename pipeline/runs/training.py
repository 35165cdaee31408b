"""Resolves the strategy and the launcher of a training before it begins."""

from __future__ import annotations

import os
from collections.abc import Mapping

from components.column_types.choice import Choice
from components.processes.kubernetes.pod_settings import PodSettings
from components.trainer.options import TrainerOptions
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import ConfigError
from trainer_module.runtime import choose_strategy
from trainer_module.settings import Precision, TrainSettings
from trainer_module.settings.ensembles import describe_default, ensemble_obstacle
from trainer_module.settings.model import AUTO, kind_for
from trainer_module.strategies.base import BaseStrategy, Processes
from trainer_module.strategies.synchronous import Communication, MultiWorkerMirroredStrategy
from trainer_module.tf_config import TFConfig, read_tf_config


def prepare_training(
    train: TrainSettings, pods: PodSettings | None = None, backup_scope: str = ""
) -> list[str]:
    """Chooses the strategy, and passes it to the Trainer's executor by environment variables.

    A problem of the strategy raises an error now, not only in the Trainer.

    Args:
      pods: the settings of pods, if the training runs in pods.
      backup_scope: a name that separates the backups of simultaneous trainings.

    Returns:
      Notes for the user.

    Raises:
      ConfigError: TF_CONFIG cannot be used, or this machine lacks a device of the strategy, or
        its workers cannot share its GPUs.
    """
    tf_config = read_tf_config(os.environ)
    choice = choose_strategy(train, tf_config)
    notes = []
    if pods is None:
        if tf_config is None:
            _check_local_workers(train, choice.strategy)
        choice.strategy.check()
        notes = _notes(train, choice.strategy, tf_config)
    prepared = {"choice": choice, "backup_scope": backup_scope}
    options = trainer_options(train, pods).model_copy(update=prepared)
    os.environ.update(options.to_environment())
    return notes


def _check_local_workers(train: TrainSettings, strategy: BaseStrategy) -> None:
    # NCCL needs a GPU for each process, and each local worker uses all GPUs of the machine.
    workers = train.cluster_or_default.workers
    if (
        workers > 1
        and isinstance(strategy, MultiWorkerMirroredStrategy)
        and strategy.communication is Communication.NCCL
    ):
        raise ConfigError(
            "train.strategy.communication: nccl needs separate GPUs for each worker, but the "
            f"{workers} workers of train.cluster share the GPUs of this machine; use ring, or "
            "`train.strategy: mirrored`, which needs a single process."
        )


def training_notes(train: TrainSettings) -> list[str]:
    """Returns notes on settings that slow down a training on this machine."""
    tf_config = read_tf_config(os.environ)
    return _notes(train, choose_strategy(train, tf_config).strategy, tf_config)


def model_note(config: PipelineConfig, columns: Mapping[str, Choice]) -> list[str]:
    """Returns a note on the chosen model and the reason, if the config does not name a model."""
    if config.model.kind != AUTO:
        return []
    declared = {name: feature.type for name, feature in config.features.items()}
    types = (declared | {name: choice.type for name, choice in columns.items()}).values()
    keys = config.model.model_fields_set
    obstacle = ensemble_obstacle(config.target, config.train, config.while_training)
    kind = kind_for(types, keys, obstacle)
    if note := describe_default(kind, obstacle):
        return [note]
    return [f"model: {kind}, as {'a' if 'image' in types else 'no'} feature is an image"]


def _notes(train: TrainSettings, strategy: BaseStrategy, tf_config: TFConfig | None) -> list[str]:
    # Servers that TF_CONFIG names may be on machines with GPUs.
    computes_here = tf_config is None or strategy.processes is not Processes.SERVERS
    if train.precision is Precision.MIXED_FLOAT16 and computes_here and strategy.is_on_cpu():
        return [
            "train.precision: mixed_float16 is for GPUs, and this training is on the CPU, where it "
            "takes many times as long; use mixed_bfloat16 or float32"
        ]
    return []


def trainer_options(train: TrainSettings, pods: PodSettings | None = None) -> TrainerOptions:
    """Returns the options that are not in the Trainer's cache key, as they do not change the
    model.
    """
    cluster = train.cluster_or_default
    return TrainerOptions(
        launcher=cluster.launcher,
        pods=pods,
        start_timeout=cluster.start_timeout,
        retries=train.retries,
        backup_steps=train.backup_steps,
    )
