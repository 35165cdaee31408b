"""The common interface of all strategies; TensorFlow is imported when a strategy is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from trainer_module.sections import Matching, Settings

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.strategies.coordinator import CopyOnCoordinator

    Read = Callable[[tf.distribute.InputContext], tf.data.Dataset]
    """A function that reads the batches of one worker's replicas."""


class Strategy(StrEnum):
    """The strategies that code refers to by name; `STRATEGIES` is the registry of all
    strategies.
    """

    AUTO = "auto"
    DEFAULT = "default"
    ONE_DEVICE = "one_device"
    MIRRORED = "mirrored"
    CENTRAL_STORAGE = "central_storage"
    MULTI_WORKER_MIRRORED = "multi_worker_mirrored"
    PARAMETER_SERVER = "parameter_server"
    TPU = "tpu"


class Processes(StrEnum):
    """The kind of processes that train together; it determines the restart after a process
    is lost.
    """

    ONE = "one"
    """A single process with any number of devices."""
    IN_STEP = "in_step"
    """Workers that synchronise in every step: after a loss, all workers are restarted."""
    SERVERS = "servers"
    """A chief, workers and parameter servers: lost servers are restarted while the chief continues.
    """


Device = Annotated[
    str, Matching(r"(cpu|gpu):[0-9]+", "expected a device such as `gpu:0` or `cpu:1`")
]


class BaseStrategy(Settings):
    """The settings of a strategy, and its training hooks."""

    kind: str
    processes: ClassVar[Processes] = Processes.ONE
    scales_losses: ClassVar[bool] = True
    """Whether the strategy supports Keras's loss scaling, which float16 needs."""
    tensorflow_names: ClassVar[tuple[str, ...]] = ()
    """The names of the TensorFlow classes to which these hooks apply."""
    has_step_hooks: ClassVar[bool] = True
    """Whether this process runs the steps in order, so that callbacks are called after each step
    and `fit` evaluates. Otherwise workers run steps asynchronously on examples that they read
    themselves."""
    repeats_steps: ClassVar[bool] = True
    """Whether one graph call of this process may run several steps."""

    def check(self) -> None:
        """Checks that this machine has the configured devices; call it before any computation.

        Raises:
          ConfigError: a configured device is missing.
        """

    def is_on_cpu(self) -> bool:
        """Returns whether the replicas compute on the CPU of this machine."""
        from trainer_module.strategies.devices import count_gpus

        return not count_gpus()

    def build(self) -> tf.distribute.Strategy:
        """Returns a new strategy; strategies of several processes read the cluster from TF_CONFIG.

        Raises:
          ConfigError: a configured device is missing.
          ValueError: the strategy is `auto`, which must be resolved first.
        """
        raise ValueError(f"strategy {self.kind} must be resolved first")

    @staticmethod
    def distribute(strategy: tf.distribute.Strategy, synchronous: Read, asynchronous: Read) -> Any:
        """Returns the dataset that `fit` and `evaluate` take.

        Args:
          strategy: the built strategy.
          synchronous: the function that reads the batches of workers with synchronous steps.
          asynchronous: the function that reads the batches of a worker with asynchronous steps.
        """
        del asynchronous
        return strategy.distribute_datasets_from_function(synchronous)

    @staticmethod
    def iterate(
        strategy: tf.distribute.Strategy, synchronous: Read, asynchronous: Read
    ) -> Iterator[Any]:
        """Returns an iterator over the training batches for `run_steps`.

        The arguments are the arguments of `distribute`.
        """
        del asynchronous
        return iter(strategy.distribute_datasets_from_function(synchronous))

    @staticmethod
    def run_steps(
        strategy: tf.distribute.Strategy,
        steps: Callable[[Iterator[Any], int], Any],
        batches: Iterator[Any],
        count: int,
    ) -> Any:
        """Runs `count` steps and returns their result, or None if the steps run asynchronously."""
        del strategy
        return steps(batches, count)

    @staticmethod
    def end_epoch(strategy: tf.distribute.Strategy) -> None:
        """Waits until all steps of `run_steps` are done."""

    @staticmethod
    def evaluate_with(
        build: Callable[[], tf_keras.Model], read: Callable[[], tf.data.Dataset]
    ) -> CopyOnCoordinator | None:
        """Returns the callback that evaluates a copy of the model after each epoch.

        The result is None if the training loop evaluates the model itself.

        Args:
          build: the function that builds a compiled copy of the model outside of the scope.
          read: the function that returns the evaluation examples in batches.
        """

    @staticmethod
    def examples_per_worker(workers: int, examples: int) -> list[int | None]:
        """Returns the number of examples that each worker has trained on.

        The number is None for a worker that does not answer.
        """
        return [examples // workers] * workers


class AutoStrategy(BaseStrategy):
    """A strategy that is chosen by TF_CONFIG, `train.cluster` and the machine."""

    kind: Literal[Strategy.AUTO]
