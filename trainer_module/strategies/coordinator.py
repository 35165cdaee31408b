"""The coordinator's part of parameter server training: a copy of the model, and example counts.

The coordinator cannot determine which worker ran which step. So the input pipeline of each worker
counts its examples in a variable of the worker's process. The counts include a few batches that
were prefetched but not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf
import tf_keras

_PART_BITS = 20
"""The number of bits of a part of an integer.

Some strategies cannot sum int64. All strategies sum float32, which holds 20 bits exactly."""
_PARTS = 4
"""The number of parts of an integer."""


def all_workers_equal(strategy: tf.distribute.Strategy, value: int) -> bool:
    """Returns whether all synchronous workers pass the same value; all get the same result.

    The function blocks until all workers have called it.

    Args:
      strategy: the strategy of the workers.
      value: an integer from 0 up to 2**80, exclusive.
    """
    mask = (1 << _PART_BITS) - 1
    parts = [value >> _PART_BITS * index & mask for index in range(_PARTS)]

    def own_column() -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        column = tf.one_hot(replica, strategy.num_replicas_in_sync)
        return tf.constant(parts, tf.float32)[:, tf.newaxis] * column

    @tf.function
    def gather() -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(own_column), axis=None)

    gathered = gather().numpy()  # [parts, replicas]: each replica adds only its own column.
    return bool((gathered == gathered[:, :1]).all())


DatasetCreator = tf_keras.utils.experimental.DatasetCreator
"""Keras's wrapper for a dataset that each worker reads itself."""

_COUNTER = "scopeline_examples_drawn"


class CopyOnCoordinator(tf_keras.callbacks.Callback):
    """A callback for parameter servers that evaluates a copy of the model after each epoch.

    The workers would evaluate random samples of the eval split; the copy evaluates every example
    once. The copy is also exported, because saving a model with sharded variables loses them.
    """

    def __init__(self, copy: tf_keras.Model, read: Callable[[], tf.data.Dataset]) -> None:
        """Stores the copy and the function that reads the evaluation examples.

        Args:
          copy: a compiled copy of the model that was built outside of the strategy's scope.
          read: the function that returns the evaluation examples in batches.
        """
        super().__init__()
        self.copy = copy
        self._read = read
        # `fit` calls the callback in the scope of the strategy, but the copy must be evaluated
        # outside of the scope. A separate thread is outside of the scope.
        self._thread = ThreadPoolExecutor(max_workers=1)

    def initialize(self, model: tf_keras.Model) -> None:
        """Assigns the weights of the copy to a built model of the strategy.

        Keras derives the scale of random weights from the shape of each shard, so the scale would
        grow with the number of servers.
        """
        for weight, shards in self._pair_weights(model):
            rows = [shard.shape[0] for shard in shards if shard.shape.rank]
            parts = tf.split(weight, rows) if rows else [weight]
            for shard, part in zip(shards, parts, strict=True):
                shard.assign(part)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the evaluation to the logs; callbacks that read the logs must come later."""
        metrics = self._thread.submit(self._evaluate).result()
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in metrics.items()})

    def fetch(self) -> tf_keras.Model:
        """Returns the copy with the current weights of the servers."""
        for weight, shards in self._pair_weights(self.model):
            weight.assign(tf.concat(shards, 0) if len(shards) > 1 else shards[0])
        return self.copy

    def _pair_weights(
        self, model: tf_keras.Model
    ) -> Iterator[tuple[tf.Variable, list[tf.Variable]]]:
        """Yields each weight of the copy with the variables of the model that have its rows."""
        variables = iter(model.weights)
        for weight in self.copy.weights:
            shards = [next(variables)]
            while weight.shape.rank and sum(shard.shape[0] for shard in shards) < weight.shape[0]:
                shards.append(next(variables))
            yield weight, shards

    def _evaluate(self) -> dict[str, float]:
        return self.fetch().evaluate(self._read(), verbose=0, return_dict=True)


def count_from_zero() -> None:
    """Sets the example counter of the executing worker to 0."""
    tf.raw_ops.AssignVariableOp(resource=_counter(), value=tf.constant(0, tf.int64))


def count(examples: int) -> None:
    """Adds examples to the counter of the executing worker."""
    tf.raw_ops.AssignAddVariableOp(resource=_counter(), value=tf.constant(examples, tf.int64))


def read_counts(workers: int) -> list[int | None]:
    """Returns the example count of each worker since the worker's start.

    The count is None for a worker that does not answer.
    """
    return [_read_count(worker) for worker in range(workers)]


def _read_count(worker: int) -> int | None:
    try:
        with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
            return int(tf.raw_ops.ReadVariableOp(resource=_counter(), dtype=tf.int64))
    except tf.errors.OpError:
        return None


def _counter() -> tf.Tensor:
    return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=_COUNTER)
