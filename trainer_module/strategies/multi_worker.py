"""MultiWorkerMirroredStrategy: workers in step with each other, usually on several machines."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat

from trainer_module.errors import ConfigError
from trainer_module.strategies.base import BaseStrategy, Processes, Strategy

if TYPE_CHECKING:
    import tensorflow as tf


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
