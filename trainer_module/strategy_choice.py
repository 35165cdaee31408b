"""Which strategy `auto` means here."""

from __future__ import annotations

from trainer_module.runtime import StrategyChoice
from trainer_module.settings import (
    DefaultStrategy,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    OneDeviceStrategy,
    ParameterServerStrategy,
    Strategy,
    TPUStrategy,
    TrainSettings,
)
from trainer_module.strategies import devices, tpu
from trainer_module.strategies.base import BaseStrategy
from trainer_module.tf_config import TFConfig


def choose_strategy(train: TrainSettings, tf_config: TFConfig | None) -> StrategyChoice:
    """The configured strategy; for `auto` the one that suits the cluster and the machine.

    The first that holds: TF_CONFIG describes a cluster; `train.cluster` asks for several workers;
    there is a TPU; there are several GPUs; there is one.

    Args:
      train: the settings.
      tf_config: the cluster that TF_CONFIG describes, if any.
    """
    if train.strategy.kind is not Strategy.AUTO:
        return StrategyChoice(strategy=train.strategy)
    if tf_config is not None:
        if tf_config.has_parameter_servers:
            servers = ParameterServerStrategy(kind=Strategy.PARAMETER_SERVER)
            return _choice(servers, "TF_CONFIG names parameter servers")
        workers = MultiWorkerMirroredStrategy(kind=Strategy.MULTI_WORKER_MIRRORED)
        return _choice(workers, f"TF_CONFIG names {tf_config.workers} workers")
    if train.cluster is not None and train.cluster.workers > 1:
        workers = MultiWorkerMirroredStrategy(kind=Strategy.MULTI_WORKER_MIRRORED)
        return _choice(workers, f"train.cluster asks for {train.cluster.workers} workers")
    return _choose_by_machine()


def _choose_by_machine() -> StrategyChoice:
    if tpu.has_tpu():
        return _choice(TPUStrategy(kind=Strategy.TPU), "there is a TPU")
    gpus = devices.count_gpus()
    if gpus > 1:
        return _choice(MirroredStrategy(kind=Strategy.MIRRORED), f"there are {gpus} GPUs")
    if gpus == 1:
        return _choice(OneDeviceStrategy(kind=Strategy.ONE_DEVICE), "there is one GPU")
    return _choice(DefaultStrategy(kind=Strategy.DEFAULT), "there is neither a GPU nor a TPU")


def _choice(strategy: BaseStrategy, reason: str) -> StrategyChoice:
    return StrategyChoice(strategy=strategy, reason=reason)
