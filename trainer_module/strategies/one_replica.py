"""One replica: on TensorFlow's own device, or on one that the config names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainer_module.strategies.base import BaseStrategy, Device, Strategy

if TYPE_CHECKING:
    import tensorflow as tf


class DefaultStrategy(BaseStrategy):
    """TensorFlow's own: one replica, on the GPU where there is one."""

    kind: Literal[Strategy.DEFAULT]

    def build(self) -> tf.distribute.Strategy:
        """The strategy that holds where no other does."""
        import tensorflow as tf

        return tf.distribute.get_strategy()


class OneDeviceStrategy(BaseStrategy):
    """One replica on a device that you name."""

    kind: Literal[Strategy.ONE_DEVICE]
    device: Device | None = None
    """Such as `gpu:1`; default: the first GPU, or the CPU."""

    def check(self) -> None:
        """Checks that the device is there."""
        from trainer_module.strategies.devices import check_devices

        check_devices([self.device] if self.device else [])

    def is_on_cpu(self) -> bool:
        """By the device's name, where it has one."""
        return self.device.startswith("cpu:") if self.device else super().is_on_cpu()

    def build(self) -> tf.distribute.Strategy:
        """On the device, of which TensorFlow makes a logical one if it is a CPU."""
        import tensorflow as tf

        from trainer_module.strategies.devices import open_devices

        return tf.distribute.OneDeviceStrategy(open_devices([self.device or ""])[0])
