"""ParameterServerStrategy: asynchronous training, in a cluster of servers."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.settings import ParameterServerStrategy


def connect(
    settings: ParameterServerStrategy, cluster: dict[str, list[str]] | None = None
) -> tf.distribute.ParameterServerStrategy:
    """Makes this process the coordinator of a cluster of running servers.

    Args:
      settings: how large variables are split.
      cluster: addresses by task type; None reads TF_CONFIG.
    """
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
    partitioners = tf.distribute.experimental.partitioners
    match settings.partitioner:
        case "min_size":
            return partitioners.MinSizePartitioner(settings.shard_bytes, max_shards=servers)
        case "max_size":
            return partitioners.MaxSizePartitioner(settings.shard_bytes, max_shards=servers)
        case "fixed_shards":
            return partitioners.FixedShardsPartitioner(servers)
    return None
