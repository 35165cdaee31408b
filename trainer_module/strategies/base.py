"""What every strategy says of itself; TensorFlow is imported when one is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from trainer_module.sections import Settings

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.strategies.coordinator import CopyOnCoordinator

    Read = Callable[[tf.distribute.InputContext], tf.data.Dataset]
    """Reads the batches of one worker's replicas."""


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
    tensorflow_names: ClassVar[tuple[str, ...]] = ()
    """The names of TensorFlow's classes, where its strategies train in a way of their own."""
    has_step_hooks: ClassVar[bool] = True
    """Whether this process orders one step after the other: then callbacks are called in each, and
    `fit` evaluates. Otherwise workers run steps at their own pace, of examples that they read."""
    repeats_steps: ClassVar[bool] = True
    """Whether one graph of this process may hold several steps."""

    def check(self) -> None:
        """Checks that this machine has what the strategy asks for, before anything is computed.

        Raises:
          ConfigError: if a device that it asks for is not there.
        """

    def is_on_cpu(self) -> bool:
        """Returns whether its replicas compute on the CPU of this machine."""
        from trainer_module.strategies.devices import count_gpus

        return not count_gpus()

    def build(self) -> tf.distribute.Strategy:
        """Returns a new strategy; of several processes it reads the cluster from TF_CONFIG.

        Raises:
          ConfigError: if a device that it names is not there.
          ValueError: if another strategy has to be chosen in its place first.
        """
        raise ValueError(f"strategy {self.kind} has to be resolved first")

    @staticmethod
    def distribute(strategy: tf.distribute.Strategy, in_step: Read, by_itself: Read) -> Any:
        """What `fit` and `evaluate` take.

        Args:
          strategy: that has been built.
          in_step: reads the batches of workers that take their steps together.
          by_itself: likewise, of a worker at its own pace.
        """
        del by_itself
        return strategy.distribute_datasets_from_function(in_step)

    @staticmethod
    def iterate(strategy: tf.distribute.Strategy, in_step: Read, by_itself: Read) -> Iterator[Any]:
        """Returns the batches of training, for `run_steps`; takes what `distribute` does."""
        del by_itself
        return iter(strategy.distribute_datasets_from_function(in_step))

    @staticmethod
    def run_steps(
        strategy: tf.distribute.Strategy,
        steps: Callable[[Iterator[Any], int], Any],
        batches: Iterator[Any],
        count: int,
    ) -> Any:
        """Runs so many steps; what they return, unless nobody waits for it."""
        del strategy
        return steps(batches, count)

    @staticmethod
    def end_epoch(strategy: tf.distribute.Strategy) -> None:
        """Returns when all steps of `run_steps` are done."""

    @staticmethod
    def evaluate_with(
        build: Callable[[], tf_keras.Model], read: Callable[[], tf.data.Dataset]
    ) -> CopyOnCoordinator | None:
        """What evaluates each epoch, and has the model in this process; None if that is `fit`.

        Args:
          build: gives a compiled model like the one that is trained, outside of the scope.
          read: gives the examples to evaluate it on, in batches.
        """

    @staticmethod
    def examples_per_worker(workers: int, examples: int) -> list[int | None]:
        """Returns how many of the examples each worker has trained on; None where it does not
        answer.
        """
        return [examples // workers] * workers


class AutoStrategy(BaseStrategy):
    """Picked by what TF_CONFIG, `train.cluster` and the machine show."""

    kind: Literal[Strategy.AUTO]
