"""The GPUs and CPUs of this machine by their names in a config."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from trainer_module.errors import ConfigError


def count_gpus() -> int:
    """Returns the number of GPUs that TensorFlow sees, without reserving their memory."""
    return len(tf.config.list_physical_devices("GPU"))


def check_devices(names: Sequence[str]) -> None:
    """Checks that this machine has the named devices, such as `gpu:0`.

    Any number of CPUs may be named: they are logical devices that share the cores.

    Raises:
      ConfigError: names the first missing device, and lists those that exist.
    """
    gpus = count_gpus()
    there = [f"gpu:{index}" for index in range(gpus)] or ["no GPU"]
    for name in names:
        if name.startswith("gpu:") and name not in there:
            raise ConfigError(
                f"train.strategy asks for {name}, but TensorFlow sees {', '.join(there)} on this "
                "machine; name a device that is there, such as cpu:0, or none."
            )
    if len(set(names)) < len(names):
        raise ConfigError(f"train.strategy names a device twice: {', '.join(names)}.")


def open_devices(names: Sequence[str]) -> list[str]:
    """Returns TensorFlow's names of the devices, such as `/gpu:0`.

    Creates as many logical CPUs as are named, which is possible only before TensorFlow uses a
    device.

    Args:
      names: such as `gpu:1`; an empty list, or an empty name, stands for all GPUs, or else all
        CPUs.

    Raises:
      ConfigError: if a device is missing.
    """
    names = [name for name in names if name]
    check_devices(names)
    _make_logical_cpus(1 + max((_index(name) for name in names if "cpu" in name), default=0))
    if names:
        return [f"/{name}" for name in names]
    return _logical("gpu") or _logical("cpu")


def _index(name: str) -> int:
    return int(name.partition(":")[2])


def _logical(kind: str) -> list[str]:
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
            f"train.strategy asks for cpu:{count - 1}, but TensorFlow has begun with "
            f"{', '.join(_logical('cpu'))}; build the strategy before anything else."
        ) from None
