"""The registry of tf.distribute strategies, and the strategies that this process has built.

A process builds a strategy once, before other code uses the devices, and keeps the object: the
collective operations of two MirroredStrategy objects in one process collide. Importing this
package, or the module of a strategy, does not import TensorFlow, so that checking a config is fast.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer_module.sections import import_registered
from trainer_module.strategies.base import BaseStrategy, Processes, Strategy
from trainer_module.strategies.network import kept_local
from trainer_module.tf_config import read_tf_config

if TYPE_CHECKING:
    import tensorflow as tf

_STRATEGIES = "trainer_module.strategies"
STRATEGIES = {
    "auto": f"{_STRATEGIES}.base.AutoStrategy",
    "default": f"{_STRATEGIES}.synchronous.DefaultStrategy",
    "one_device": f"{_STRATEGIES}.synchronous.OneDeviceStrategy",
    "mirrored": f"{_STRATEGIES}.synchronous.MirroredStrategy",
    "central_storage": f"{_STRATEGIES}.synchronous.CentralStorageStrategy",
    "multi_worker_mirrored": f"{_STRATEGIES}.synchronous.MultiWorkerMirroredStrategy",
    "parameter_server": f"{_STRATEGIES}.parameter_server.ParameterServerStrategy",
    "tpu": f"{_STRATEGIES}.tpu.TPUStrategy",
}
"""The import path of each strategy's settings, by the name in `train.strategy`."""

_BUILT: dict[str, tf.distribute.Strategy] = {}


def strategy_class(kind: str) -> type[BaseStrategy]:
    """Returns the settings class of a strategy, by its name in the config."""
    settings: type[BaseStrategy] = import_registered(STRATEGIES[kind])
    return settings


def hooks_of(strategy: tf.distribute.Strategy) -> type[BaseStrategy]:
    """Returns the class with the training hooks of any TensorFlow strategy."""
    names = {kind.__name__ for kind in type(strategy).__mro__}
    classes = (strategy_class(kind) for kind in STRATEGIES)
    return next((c for c in classes if names & {*c.tensorflow_names}), BaseStrategy)


def processes_of(kind: str) -> Processes:
    """Returns the kind of processes that a strategy trains in, by its name in the config."""
    return strategy_class(kind).processes


def strategies_of_several_processes() -> list[str]:
    """Returns the names of the strategies that train in several processes."""
    return [kind for kind in STRATEGIES if processes_of(kind) is not Processes.ONE]


def build_strategy(settings: BaseStrategy) -> tf.distribute.Strategy:
    """Returns the strategy of the settings, which is the same object for equal settings.

    For `multi_worker_mirrored` and `parameter_server` the function reads the cluster from
    TF_CONFIG, and waits until every process of the cluster has answered.

    Raises:
      ConfigError: a configured device is missing, or the TPU does not answer.
      ValueError: the strategy is `auto`, which `runtime.choose_strategy` must resolve first.
    """
    if settings.kind == Strategy.DEFAULT:
        return settings.build()
    key = settings.model_dump_json()
    if key not in _BUILT:
        with kept_local(read_tf_config(os.environ)):
            _BUILT[key] = settings.build()
    return _BUILT[key]
