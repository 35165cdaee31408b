"""What workers in step have to decide alike."""

from __future__ import annotations

import tensorflow as tf

_PART = 20
"""Bits of a part, which float32 holds: every strategy adds up float32, and not all add up int64."""
_PARTS = 4


def agree(strategy: tf.distribute.Strategy, value: int) -> bool:
    """Whether all workers in step have the same value; returns once all of them have asked.

    All of them get the same answer.

    Args:
      strategy: that the workers are under.
      value: from 0 up to, but without, 2**80.
    """
    parts = [value >> _PART * place & (1 << _PART) - 1 for place in range(_PARTS)]

    def own_column() -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        column = tf.one_hot(replica, strategy.num_replicas_in_sync)
        return tf.constant(parts, tf.float32)[:, tf.newaxis] * column

    @tf.function
    def gather() -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(own_column), axis=None)

    gathered = gather().numpy()  # [parts, replicas]: of each sum one term alone is not 0.
    return bool((gathered == gathered[:, :1]).all())
