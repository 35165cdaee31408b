"""ParameterServerStrategy: asynchronous training, in a cluster of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from trainer_module.strategies.base import BaseStrategy, Processes, Strategy

if TYPE_CHECKING:
    import tensorflow as tf


class ParameterServerStrategy(BaseStrategy):
    """Workers at their own pace, the variables on parameter servers: asynchronous training."""

    kind: Literal[Strategy.PARAMETER_SERVER]
    processes: ClassVar[Processes] = Processes.SERVERS
    scales_losses: ClassVar[bool] = False
    partitioner: Literal["none", "min_size", "max_size", "fixed_shards"] = "none"
    """Splits large variables among the parameter servers: into parts of at least `shard_bytes`
    (`min_size`), of at most `shard_bytes` (`max_size`), or one for each server."""
    shard_bytes: PositiveInt = 256 * 1024
    """For `min_size` and `max_size`."""

    def build(self) -> tf.distribute.Strategy:
        """Returns once every server of TF_CONFIG has answered."""
        return connect(self)


def connect(
    settings: ParameterServerStrategy, cluster: dict[str, list[str]] | None = None
) -> tf.distribute.ParameterServerStrategy:
    """Makes this process the coordinator of a cluster of running servers.

    Args:
      settings: how large variables are split.
      cluster: addresses by task type; None reads TF_CONFIG.
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
