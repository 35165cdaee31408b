"""ParameterServerStrategy: asynchronous training in a cluster of parameter servers and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PositiveInt

from trainer_module.strategies.base import BaseStrategy, Processes, Strategy

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.strategies.base import Read
    from trainer_module.strategies.coordinator import CopyOnCoordinator


class ParameterServerStrategy(BaseStrategy):
    """Asynchronous training: workers run their steps independently, parameter servers store the
    variables.
    """

    kind: Literal[Strategy.PARAMETER_SERVER]
    processes: ClassVar[Processes] = Processes.SERVERS
    scales_losses: ClassVar[bool] = False
    tensorflow_names: ClassVar[tuple[str, ...]] = ("ParameterServerStrategyV2",)
    has_step_hooks: ClassVar[bool] = False
    repeats_steps: ClassVar[bool] = False
    partitioner: Literal["none", "min_size", "max_size", "fixed_shards"] = "none"
    """How large variables are sharded among the parameter servers: not at all (`none`), into shards
    of at least `shard_bytes` (`min_size`), of at most `shard_bytes` (`max_size`), or into one shard
    per server (`fixed_shards`)."""
    shard_bytes: PositiveInt = 256 * 1024
    """The minimum (`min_size`) or maximum (`max_size`) size of a shard in bytes."""

    def build(self) -> tf.distribute.Strategy:
        """Returns the strategy once every server of TF_CONFIG has answered."""
        return connect(self)

    @staticmethod
    def distribute(strategy: tf.distribute.Strategy, synchronous: Read, asynchronous: Read) -> Any:
        """Returns the dataset creator by which each worker reads its own dataset in `fit`."""
        from trainer_module.strategies.coordinator import DatasetCreator

        del strategy, synchronous
        return DatasetCreator(asynchronous)

    @staticmethod
    def iterate(
        strategy: tf.distribute.Strategy, synchronous: Read, asynchronous: Read
    ) -> Iterator[Any]:
        """Returns an iterator over batches that the workers read."""
        del synchronous
        return iter(
            _coordinator(strategy).create_per_worker_dataset(
                lambda: strategy.distribute_datasets_from_function(asynchronous)
            )
        )

    @staticmethod
    def run_steps(
        strategy: tf.distribute.Strategy,
        steps: Callable[[Iterator[Any], int], Any],
        batches: Iterator[Any],
        count: int,
    ) -> None:
        """Schedules the steps on the next free worker."""
        _coordinator(strategy).schedule(steps, (batches, count))

    @staticmethod
    def end_epoch(strategy: tf.distribute.Strategy) -> None:
        """Waits for all scheduled steps of the workers."""
        _coordinator(strategy).join()

    @staticmethod
    def evaluate_with(
        build: Callable[[], tf_keras.Model], read: Callable[[], tf.data.Dataset]
    ) -> CopyOnCoordinator:
        """Returns the callback that evaluates every example once, with a copy of the model."""
        from trainer_module.strategies.coordinator import CopyOnCoordinator

        return CopyOnCoordinator(build(), read)

    @staticmethod
    def examples_per_worker(workers: int, examples: int) -> list[int | None]:
        """Returns the example counts of the workers since their start."""
        from trainer_module.strategies.coordinator import read_counts

        del examples
        return read_counts(workers)


def _coordinator(
    strategy: tf.distribute.Strategy,
) -> tf.distribute.coordinator.ClusterCoordinator:
    """Returns the strategy's coordinator, which is one object per strategy."""
    import tensorflow as tf

    return tf.distribute.coordinator.ClusterCoordinator(strategy)


def connect(
    settings: ParameterServerStrategy, cluster: dict[str, list[str]] | None = None
) -> tf.distribute.ParameterServerStrategy:
    """Makes this process the coordinator of a cluster of running servers.

    Args:
      settings: the sharding of large variables.
      cluster: the addresses by task type; None to read TF_CONFIG.
    """
    import tensorflow as tf

    if cluster is None:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    else:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
    servers = resolver.cluster_spec().num_tasks("ps")
    return tf.distribute.ParameterServerStrategy(resolver, _partitioner(settings, servers))


def _partitioner(
    settings: ParameterServerStrategy, servers: int
) -> tf.distribute.experimental.partitioners.Partitioner | None:
    import tensorflow as tf

    partitioners = tf.distribute.experimental.partitioners
    match settings.partitioner:
        case "min_size":
            return partitioners.MinSizePartitioner(settings.shard_bytes, max_shards=servers)
        case "max_size":
            return partitioners.MaxSizePartitioner(settings.shard_bytes, max_shards=servers)
        case "fixed_shards":
            return partitioners.FixedShardsPartitioner(servers)
    return None
