"""What workers in step have to decide alike."""

from __future__ import annotations

import tensorflow as tf


def agree(strategy: tf.distribute.Strategy, value: int) -> bool:
    """Whether all workers in step have the same value; returns once all of them have asked."""

    @tf.function
    def add() -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(lambda: tf.constant(float(value))), axis=None)

    return float(add()) == value * strategy.num_replicas_in_sync
