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
    """TensorFlow's default strategy: one replica, on the first GPU or, without a GPU, on
    the CPU.
    """

    kind: Literal[Strategy.DEFAULT]

    def build(self) -> tf.distribute.Strategy:
        """Returns TensorFlow's default strategy."""
        import tensorflow as tf

        return tf.distribute.get_strategy()


class OneDeviceStrategy(BaseStrategy):
    """A single replica on a device of your choice."""

    kind: Literal[Strategy.ONE_DEVICE]
    device: Device | None = None
    """The device, such as `gpu:1`; default: the first GPU, or the CPU without a GPU."""

    def check(self) -> None:
        """Checks that the device exists."""
        from trainer_module.strategies.devices import check_devices

        check_devices([self.device] if self.device else [])

    def is_on_cpu(self) -> bool:
        """Returns whether the device of the replica is a CPU."""
        return self.device.startswith("cpu:") if self.device else super().is_on_cpu()

    def build(self) -> tf.distribute.Strategy:
        """Returns the strategy of the device, and creates logical CPUs as needed."""
        import tensorflow as tf

        from trainer_module.strategies.devices import open_devices

        return tf.distribute.OneDeviceStrategy(open_devices([self.device or ""])[0])


class Communication(StrEnum):
    """The implementation of the gradient exchange between workers; `auto` lets TensorFlow
    choose.
    """

    AUTO = "auto"
    """TensorFlow chooses by the devices."""
    RING = "ring"
    """Rings of gRPC connections between the workers."""
    NCCL = "nccl"
    """NCCL, for NVIDIA GPUs."""


class MultiWorkerMirroredStrategy(BaseStrategy):
    """Synchronous replicas in several processes, usually on several machines."""

    kind: Literal[Strategy.MULTI_WORKER_MIRRORED]
    processes: ClassVar[Processes] = Processes.IN_STEP
    communication: Communication = Communication.AUTO
    """The implementation of the gradient exchange between workers."""
    bytes_per_pack: int = Field(default=0, ge=0)
    """The size of the packs in which gradients are sent; 0 lets TensorFlow choose."""
    timeout: PositiveFloat | None = None
    """The timeout in seconds of an exchange that a worker does not join; default: no timeout."""

    def check(self) -> None:
        """Checks that this worker supports the configured communication."""
        if self.communication is Communication.NCCL and self.is_on_cpu():
            raise ConfigError(
                "train.strategy.communication: nccl needs a GPU on every worker, but this worker "
                "has no GPU; use ring, or remove the key."
            )

    def build(self) -> tf.distribute.Strategy:
        """Returns the strategy once every worker of TF_CONFIG has answered."""
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
    """The implementation of the sum of gradients over mirrored replicas."""

    NCCL = "nccl"
    """NCCL, the default on GPUs."""
    HIERARCHICAL_COPY = "hierarchical_copy"
    """Copies in a tree, for machines without NVLink between all GPUs."""
    REDUCTION_TO_ONE = "reduction_to_one"
    """Copies to one device, which sums them."""


class _ReplicatedStrategy(BaseStrategy):
    """A strategy with one replica on each of several devices."""

    devices: list[Device] = []

    def check(self) -> None:
        """Checks that the devices exist."""
        from trainer_module.strategies.devices import check_devices

        check_devices(self.devices)

    def is_on_cpu(self) -> bool:
        """Returns whether the device of any replica is a CPU."""
        if self.devices:
            return any(name.startswith("cpu:") for name in self.devices)
        return super().is_on_cpu()


class MirroredStrategy(_ReplicatedStrategy):
    """Synchronous replicas, one on each device of this machine."""

    kind: Literal[Strategy.MIRRORED]
    devices: list[Device] = []
    """The devices, such as `[gpu:0, gpu:1]`, or `[cpu:0, cpu:1]` for replicas that share the CPU;
    default: all GPUs, or the CPU without a GPU."""
    reduction: Reduction | None = None
    """The implementation of the sum of gradients; default: nccl on GPUs, reduction_to_one
    otherwise."""

    def check(self) -> None:
        """Checks that the devices exist and support the reduction."""
        super().check()
        if self.reduction is Reduction.NCCL and self.is_on_cpu():
            raise ConfigError(
                f"train.strategy.reduction: nccl needs GPUs, but the replicas are on "
                f"{', '.join(self.devices) or 'the CPU'}; use hierarchical_copy or "
                "reduction_to_one, or remove the key."
            )

    def build(self) -> tf.distribute.Strategy:
        """Returns the strategy, which mirrors the variables on every device."""
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
    """A replica on each device; the variables are on the CPU, or on the GPU if there is
    only one.
    """

    kind: Literal[Strategy.CENTRAL_STORAGE]
    scales_losses: ClassVar[bool] = False
    devices: list[Device] = []
    """The devices, as for `mirrored`."""

    def build(self) -> tf.distribute.Strategy:
        """Returns the strategy, which stores the variables on one device."""
        import tensorflow as tf

        from trainer_module.strategies.devices import open_devices

        names = open_devices(self.devices)
        return tf.distribute.experimental.CentralStorageStrategy(names)
