"""The registry of tf.distribute strategies, and the one object of each in a process.

The collective operations of two MirroredStrategy objects in one process collide, so a strategy is
built once, before anything else uses the devices, and kept. Importing this package, or a strategy's
module, does not import TensorFlow, so that a config is checked quickly.
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
"""Import paths of the strategies' settings by the name in `train.strategy`."""

_BUILT: dict[str, tf.distribute.Strategy] = {}


def strategy_class(kind: str) -> type[BaseStrategy]:
    """Returns the settings of a strategy, by its name in the config."""
    found: type[BaseStrategy] = import_registered(STRATEGIES[kind])
    return found


def hooks_of(strategy: tf.distribute.Strategy) -> type[BaseStrategy]:
    """Returns the class with the training hooks of a TensorFlow strategy, wherever it was built."""
    names = {kind.__name__ for kind in type(strategy).__mro__}
    own = (strategy_class(kind) for kind in STRATEGIES)
    return next((found for found in own if names & {*found.tensorflow_names}), BaseStrategy)


def processes_of(kind: str) -> Processes:
    """Returns the kind of processes that a strategy trains in, by its name in the config."""
    return strategy_class(kind).processes


def strategies_of_several_processes() -> list[str]:
    """Returns the names of the strategies whose processes `train.cluster` counts."""
    return [kind for kind in STRATEGIES if processes_of(kind) is not Processes.ONE]


def build_strategy(settings: BaseStrategy) -> tf.distribute.Strategy:
    """Returns the strategy of these settings; the same object for equal settings.

    `multi_worker_mirrored` and `parameter_server` read the cluster from TF_CONFIG, and return once
    every process of it has answered.

    Raises:
      ConfigError: if a configured device is missing, or the TPU does not answer.
      ValueError: for `auto`, which `runtime.choose_strategy` resolves first.
    """
    if settings.kind == Strategy.DEFAULT:
        return settings.build()
    key = settings.model_dump_json()
    if key not in _BUILT:
        with kept_local(read_tf_config(os.environ)):
            _BUILT[key] = settings.build()
    return _BUILT[key]
