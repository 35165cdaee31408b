"""Replicas on several devices of this machine, in step with each other."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal

from trainer_module.errors import ConfigError
from trainer_module.strategies.base import BaseStrategy, Device, Strategy

if TYPE_CHECKING:
    import tensorflow as tf


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
        """The variables are on every device."""
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
        """The variables are on one device."""
        import tensorflow as tf

        from trainer_module.strategies.devices import open_devices

        names = open_devices(self.devices)
        return tf.distribute.experimental.CentralStorageStrategy(names)
