"""How a training is run and looked after: resolved before it begins, and passed on."""

from __future__ import annotations

import os

from components.trainer.cluster.kubernetes.pod_settings import PodSettings
from components.trainer.options import TrainerOptions
from trainer_module.settings import TrainSettings
from trainer_module.strategies.automatic import choose_strategy
from trainer_module.tf_config import read_tf_config


def prepare_training(
    train: TrainSettings, pods: PodSettings | None = None, backup_scope: str = ""
) -> None:
    """Chooses the strategy, and passes it to Trainer's executor with what looks after training.

    What Trainer would stumble over is found out now.

    Args:
      train: how to train.
      pods: what pods are given, where those are what trains.
      backup_scope: keeps apart what may train at the same time.

    Raises:
      ConfigError: TF_CONFIG cannot be used, or this machine lacks a device of the strategy.
    """
    choice = choose_strategy(train, read_tf_config(os.environ))
    if pods is None:
        choice.strategy.check()
    prepared = {"choice": choice, "backup_scope": backup_scope}
    options = trainer_options(train, pods).model_copy(update=prepared)
    os.environ.update(options.to_environment())


def trainer_options(train: TrainSettings, pods: PodSettings | None = None) -> TrainerOptions:
    """What stays out of the Trainer's cache key, as it does not change what comes out of it."""
    cluster = train.cluster_or_default
    return TrainerOptions(
        launcher=cluster.launcher,
        pods=pods,
        start_timeout=cluster.start_timeout,
        retries=train.retries,
        backup_steps=train.backup_steps,
    )
