"""The tf.distribute strategies by name."""

from __future__ import annotations

import functools

import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.settings import Strategy


def build_strategy(name: Strategy) -> tf.distribute.Strategy:
    """The strategy of that name, over all local devices.

    On a machine without a GPU the replicas are the logical CPUs, of which TensorFlow has one
    unless told otherwise. A process gets one object per name: TensorFlow's collective operations
    of two MirroredStrategy objects in one process collide.

    Raises:
        TrainingError: if the strategy is not supported yet.
    """
    if name is Strategy.DEFAULT:
        return tf.distribute.get_strategy()
    return _build_once(name)


@functools.cache
def _build_once(name: Strategy) -> tf.distribute.Strategy:
    devices = _local_devices()
    match name:
        case Strategy.ONE_DEVICE:
            return tf.distribute.OneDeviceStrategy(devices[0])
        case Strategy.MIRRORED:
            return tf.distribute.MirroredStrategy(devices)
        case Strategy.CENTRAL_STORAGE:
            return tf.distribute.experimental.CentralStorageStrategy(devices)
        case _:
            raise TrainingError(
                f"strategy {name} is not supported yet; use default, one_device, mirrored or "
                "central_storage."
            )


def _local_devices() -> list[str]:
    """All GPUs, or all logical CPUs where there is no GPU: `/gpu:0` and so on."""
    for kind in ("gpu", "cpu"):
        if count := len(tf.config.list_logical_devices(kind.upper())):
            return [f"/{kind}:{index}" for index in range(count)]
    raise TrainingError("TensorFlow sees neither a GPU nor a CPU on this machine.")
