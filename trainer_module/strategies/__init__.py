"""The tf.distribute strategies by their settings: one object each in a process.

TensorFlow's collective operations of two MirroredStrategy objects in one process collide, so a
strategy is built once, before anything else uses the devices, and kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import tensorflow as tf

from trainer_module.errors import ConfigError
from trainer_module.settings import (
    AnyStrategy,
    CentralStorageStrategy,
    Communication,
    DefaultStrategy,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    OneDeviceStrategy,
    ParameterServerStrategy,
    Reduction,
    TPUStrategy,
)
from trainer_module.strategies import devices, parameter_server, tpu
from trainer_module.strategies.network import kept_local
from trainer_module.tf_config import read_tf_config

_BUILT: dict[str, tf.distribute.Strategy] = {}

_REDUCTIONS: dict[Reduction, Callable[[], tf.distribute.CrossDeviceOps]] = {
    Reduction.NCCL: tf.distribute.NcclAllReduce,
    Reduction.HIERARCHICAL_COPY: tf.distribute.HierarchicalCopyAllReduce,
    Reduction.REDUCTION_TO_ONE: tf.distribute.ReductionToOneDevice,
}
_COMMUNICATION = {
    kind: tf.distribute.experimental.CommunicationImplementation[kind.name]
    for kind in Communication
}


def build_strategy(settings: AnyStrategy) -> tf.distribute.Strategy:
    """The strategy of these settings; the same object when it is asked for again.

    `multi_worker_mirrored` and `parameter_server` read the cluster from TF_CONFIG, and return once
    every process of it has answered.

    Raises:
      ConfigError: if a device that it names is not there, or the TPU does not answer.
      ValueError: for `auto`, which `automatic.choose_strategy` resolves first.
    """
    if isinstance(settings, DefaultStrategy):
        return tf.distribute.get_strategy()
    key = settings.model_dump_json()
    if key not in _BUILT:
        cluster = read_tf_config(os.environ)
        with kept_local(cluster.cluster if cluster else {}):
            _BUILT[key] = _build(settings)
    return _BUILT[key]


def _build(settings: AnyStrategy) -> tf.distribute.Strategy:
    match settings:
        case OneDeviceStrategy(device=device):
            return tf.distribute.OneDeviceStrategy(devices.open_devices([device or ""])[0])
        case MirroredStrategy():
            return _build_mirrored(settings)
        case CentralStorageStrategy():
            names = devices.open_devices(settings.devices)
            return tf.distribute.experimental.CentralStorageStrategy(names)
        case MultiWorkerMirroredStrategy():
            return _build_multi_worker(settings)
        case ParameterServerStrategy():
            return parameter_server.connect(settings)
        case TPUStrategy():
            return tpu.connect(settings)
    raise ValueError(f"strategy {settings.kind} has to be resolved first")


def _build_mirrored(settings: MirroredStrategy) -> tf.distribute.Strategy:
    names = devices.open_devices(settings.devices)
    if settings.reduction is Reduction.NCCL and not all("gpu" in name for name in names):
        raise ConfigError(
            f"train.strategy.reduction: nccl needs GPUs, but the replicas are on "
            f"{', '.join(names)}; use hierarchical_copy or reduction_to_one, or leave it out."
        )
    reduction = _REDUCTIONS[settings.reduction]() if settings.reduction else None
    return tf.distribute.MirroredStrategy(names, cross_device_ops=reduction)


def _build_multi_worker(settings: MultiWorkerMirroredStrategy) -> tf.distribute.Strategy:
    if settings.communication is Communication.NCCL and not devices.count_gpus():
        raise ConfigError(
            "train.strategy.communication: nccl needs a GPU on every worker, but here is none; "
            "use ring, or leave it out."
        )
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=settings.bytes_per_pack,
        timeout_seconds=settings.timeout,
        implementation=_COMMUNICATION[settings.communication],
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
