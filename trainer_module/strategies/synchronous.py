"""Synchronous strategies: one device, several devices of a machine, and several machines."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat

from trainer_module.errors import ConfigError
from trainer_module.strategies.base import BaseStrategy, Device, Processes, Strategy

if TYPE_CHECKING:
    import tensorflow as tf


class DefaultStrategy(BaseStrategy):
    """TensorFlow's own: one replica, on the GPU where there is one."""

    kind: Literal[Strategy.DEFAULT]

    def build(self) -> tf.distribute.Strategy:
        """Returns the strategy that holds where no other does."""
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


class Communication(StrEnum):
    """What workers exchange their gradients by; `auto` leaves it to TensorFlow."""

    AUTO = "auto"
    RING = "ring"
    NCCL = "nccl"


class MultiWorkerMirroredStrategy(BaseStrategy):
    """Replicas in several processes, usually on several machines, in step with each other."""

    kind: Literal[Strategy.MULTI_WORKER_MIRRORED]
    processes: ClassVar[Processes] = Processes.IN_STEP
    communication: Communication = Communication.AUTO
    bytes_per_pack: int = Field(default=0, ge=0)
    """Gradients are sent in packs of so many bytes; 0 leaves it to TensorFlow."""
    timeout: PositiveFloat | None = None
    """Seconds until an exchange that a worker does not join fails; default: never."""

    def check(self) -> None:
        """Checks that this worker can exchange gradients as it is asked to."""
        if self.communication is Communication.NCCL and self.is_on_cpu():
            raise ConfigError(
                "train.strategy.communication: nccl needs a GPU on every worker, but here is none; "
                "use ring, or leave it out."
            )

    def build(self) -> tf.distribute.Strategy:
        """Returns once every worker of TF_CONFIG has answered."""
        import tensorflow as tf

        self.check()
        implementations = tf.distribute.experimental.CommunicationImplementation
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=self.bytes_per_pack,
            timeout_seconds=self.timeout,
            implementation=implementations[self.communication.name],
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


class Reduction(StrEnum):
    """How mirrored replicas add up their gradients."""

    NCCL = "nccl"
    HIERARCHICAL_COPY = "hierarchical_copy"
    REDUCTION_TO_ONE = "reduction_to_one"


class _ReplicatedStrategy(BaseStrategy):
    """A replica on each of some devices."""

    devices: list[Device] = []

    def check(self) -> None:
        """Checks that the devices are there."""
        from trainer_module.strategies.devices import check_devices

        check_devices(self.devices)

    def is_on_cpu(self) -> bool:
        """By the devices' names, where they have some: the slowest counts."""
        named = [name.startswith("cpu:") for name in self.devices]
        return any(named) if named else super().is_on_cpu()


class MirroredStrategy(_ReplicatedStrategy):
    """A replica on each device of this machine, in step with each other."""

    kind: Literal[Strategy.MIRRORED]
    devices: list[Device] = []
    """Such as `[gpu:0, gpu:1]`, or `[cpu:0, cpu:1]` for replicas that share the CPU; default: all
    GPUs, or the CPU."""
    reduction: Reduction | None = None
    """Default: nccl on GPUs, reduction_to_one otherwise."""

    def check(self) -> None:
        """Checks that the devices are there, and can do the reduction."""
        super().check()
        if self.reduction is Reduction.NCCL and self.is_on_cpu():
            raise ConfigError(
                f"train.strategy.reduction: nccl needs GPUs, but the replicas are on "
                f"{', '.join(self.devices) or 'the CPU'}; use hierarchical_copy or "
                "reduction_to_one, or leave it out."
            )

    def build(self) -> tf.distribute.Strategy:
        """Returns the variables are on every device."""
        import tensorflow as tf

        from trainer_module.strategies.devices import open_devices

        self.check()
        names = open_devices(self.devices)
        reductions = {
            Reduction.NCCL: tf.distribute.NcclAllReduce,
            Reduction.HIERARCHICAL_COPY: tf.distribute.HierarchicalCopyAllReduce,
            Reduction.REDUCTION_TO_ONE: tf.distribute.ReductionToOneDevice,
        }
        reduction = reductions[self.reduction]() if self.reduction else None
        return tf.distribute.MirroredStrategy(names, cross_device_ops=reduction)


class CentralStorageStrategy(_ReplicatedStrategy):
    """A replica on each device, the variables in one place: on the CPU, or on the only GPU."""

    kind: Literal[Strategy.CENTRAL_STORAGE]
    scales_losses: ClassVar[bool] = False
    devices: list[Device] = []
    """As for `mirrored`."""

    def build(self) -> tf.distribute.Strategy:
        """Returns the variables are on one device."""
        import tensorflow as tf

        from trainer_module.strategies.devices import open_devices

        names = open_devices(self.devices)
        return tf.distribute.experimental.CentralStorageStrategy(names)
