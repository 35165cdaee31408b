"""The GPUs and CPUs of this machine by their names in a config, and the threads of operations."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import tensorflow as tf

from trainer_module.errors import ConfigError
from trainer_module.machine import count_cores

_INTRAOP_THREADS = "TF_NUM_INTRAOP_THREADS"
"""The environment variable with the number of threads of an operation."""

_FEW_CORES = 2
"""The number of cores up to which two threads of a small operation mostly wait for each other."""


def use_single_threads() -> None:
    """Limits each operation of this process to one thread on a machine with few cores.

    Operations that do not depend on each other still run in parallel. On 2 cores a step of
    `tabular` takes 15 % less time and 25 % less CPU time. The function has no effect if the
    environment sets the number of threads, or if TensorFlow has already started.
    """
    if count_cores() > _FEW_CORES or _INTRAOP_THREADS in os.environ:
        return
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)


def count_gpus() -> int:
    """Returns the number of GPUs that TensorFlow sees, without reserving their memory."""
    return len(tf.config.list_physical_devices("GPU"))


def check_devices(names: Sequence[str]) -> None:
    """Checks that this machine has the devices, such as `gpu:0`.

    Any number of CPUs is valid, because they are logical devices that share the cores.

    Raises:
      ConfigError: a device is missing; the message lists the existing devices.
    """
    gpus = count_gpus()
    existing = [f"gpu:{index}" for index in range(gpus)] or ["no GPU"]
    for name in names:
        if name.startswith("gpu:") and name not in existing:
            raise ConfigError(
                f"train.strategy names {name}, but TensorFlow finds {', '.join(existing)} on this "
                "machine; name an existing device, such as cpu:0, or remove the device."
            )
    if len(set(names)) < len(names):
        raise ConfigError(f"train.strategy names a device twice: {', '.join(names)}.")


def open_devices(names: Sequence[str]) -> list[str]:
    """Returns TensorFlow's names of the devices, such as `/gpu:0`.

    The function creates the logical CPUs in `names`. This is possible only before TensorFlow uses a
    device.

    Args:
      names: the devices, such as `gpu:1`. An empty list, or an empty name, stands for all GPUs, or
        for all CPUs if there is no GPU.

    Raises:
      ConfigError: a device is missing.
    """
    names = [name for name in names if name]
    check_devices(names)
    _make_logical_cpus(1 + max((_index(name) for name in names if "cpu" in name), default=0))
    if names:
        return [f"/{name}" for name in names]
    return _logical_devices("gpu") or _logical_devices("cpu")


def _index(name: str) -> int:
    return int(name.partition(":")[2])


def _logical_devices(kind: str) -> list[str]:
    count = len(tf.config.list_logical_devices(kind.upper()))
    return [f"/{kind}:{index}" for index in range(count)]


def _make_logical_cpus(count: int) -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    if count <= len(tf.config.get_logical_device_configuration(cpu) or [cpu]):
        return
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    except RuntimeError:
        raise ConfigError(
            f"train.strategy names cpu:{count - 1}, but TensorFlow has already started with "
            f"{', '.join(_logical_devices('cpu'))}; build the strategy before any other use of "
            "TensorFlow."
        ) from None
