"""What every strategy says of itself; TensorFlow is imported when one is built."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator

from trainer_module.sections import Settings

if TYPE_CHECKING:
    import tensorflow as tf


class Strategy(StrEnum):
    """The strategies that code names; `STRATEGIES` knows all that there are."""

    AUTO = "auto"
    DEFAULT = "default"
    ONE_DEVICE = "one_device"
    MIRRORED = "mirrored"
    CENTRAL_STORAGE = "central_storage"
    MULTI_WORKER_MIRRORED = "multi_worker_mirrored"
    PARAMETER_SERVER = "parameter_server"
    TPU = "tpu"


class Processes(StrEnum):
    """The processes that train together, which says what is started again when one is lost."""

    ONE = "one"
    """One, whatever its devices."""
    IN_STEP = "in_step"
    """Workers that wait for each other in every step: all are started again."""
    SERVERS = "servers"
    """A chief, workers and parameter servers: the chief goes on with servers that are new."""


def _check_device(name: str) -> str:
    if not re.fullmatch(r"(cpu|gpu):[0-9]+", name):
        raise ValueError("right is a device such as `gpu:0` or `cpu:1`")
    return name


Device = Annotated[str, AfterValidator(_check_device)]


class BaseStrategy(Settings):
    """The settings of a strategy, and what it does with them."""

    kind: str
    processes: ClassVar[Processes] = Processes.ONE
    scales_losses: ClassVar[bool] = True
    """Whether Keras can scale a loss up, and its gradients down again, as float16 needs it."""

    def check(self) -> None:
        """Checks that this machine has what the strategy asks for, before anything is computed.

        Raises:
          ConfigError: if a device that it asks for is not there.
        """

    def is_on_cpu(self) -> bool:
        """Whether its replicas compute on the CPU of this machine."""
        from trainer_module.strategies.devices import count_gpus

        return not count_gpus()

    def build(self) -> tf.distribute.Strategy:
        """A new strategy; of several processes it reads the cluster from TF_CONFIG.

        Raises:
          ConfigError: if a device that it names is not there.
          ValueError: if another strategy has to be chosen in its place first.
        """
        raise ValueError(f"strategy {self.kind} has to be resolved first")


class AutoStrategy(BaseStrategy):
    """Picked by what TF_CONFIG, `train.cluster` and the machine show."""

    kind: Literal[Strategy.AUTO]
