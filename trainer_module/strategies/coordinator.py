"""The coordinator's part of parameter server training: a copy of the model, and example counts.

The coordinator cannot see which worker ran which step, so each worker counts its examples in a
variable of its own process, to which its input pipeline adds. The counts include a few batches that
were prefetched but not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf
import tf_keras

_PART = 20
"""The bits of a part, which float32 holds exactly: all strategies sum float32, not all sum int64.
"""
_PARTS = 4


def all_workers_equal(strategy: tf.distribute.Strategy, value: int) -> bool:
    """Returns whether all synchronous workers pass the same value; blocks until all have called it.

    All workers get the same result.

    Args:
      strategy: the strategy of the workers.
      value: an integer from 0 up to 2**80, exclusive.
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


DatasetCreator = tf_keras.utils.experimental.DatasetCreator
"""The wrapper with which `fit` has each worker read its own dataset."""

_COUNTER = "scopeline_examples_drawn"


class CopyOnCoordinator(tf_keras.callbacks.Callback):
    """A callback for parameter servers that keeps a copy of the model and evaluates each epoch with
    it.

    The workers would sample the eval split at random; here every example is evaluated once. And a
    model whose variables are sharded among servers loses them when it is saved.
    """

    def __init__(self, copy: tf_keras.Model, read: Callable[[], tf.data.Dataset]) -> None:
        """Stores the copy and the reader of its examples.

        Args:
          copy: a compiled copy of the trained model, built outside of its scope.
          read: returns the examples to evaluate on, in batches.
        """
        super().__init__()
        self.copy = copy
        self._read = read
        # `fit` calls this in the scope of the strategy; a separate thread is outside of the scope.
        self._thread = ThreadPoolExecutor(max_workers=1)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the evaluation to the logs; has to precede the callbacks that read them."""
        found = self._thread.submit(self._evaluate).result()
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in found.items()})

    def fetch(self) -> tf_keras.Model:
        """Returns the copy with the current weights of the servers."""
        parts = iter(self.model.weights)
        for weight in self.copy.weights:
            weight.assign(_joined(parts, weight.shape))
        return self.copy

    def _evaluate(self) -> dict[str, float]:
        return self.fetch().evaluate(self._read(), verbose=0, return_dict=True)


def _joined(parts: Iterator[tf.Variable], shape: tf.TensorShape) -> tf.Tensor:
    """Returns the next weight, joined from its shards if several servers store a part of its
    rows.
    """
    found = [tf.identity(next(parts))]
    while sum(len(part) for part in found if shape.rank) < (shape[0] if shape.rank else 0):
        found.append(tf.identity(next(parts)))
    return tf.concat(found, 0) if len(found) > 1 else found[0]


def count_from_zero() -> None:
    """Sets the example counter of the executing worker to 0."""
    tf.raw_ops.AssignVariableOp(resource=_counter(), value=tf.constant(0, tf.int64))


def count(examples: int) -> None:
    """Adds examples to the counter of the executing worker."""
    tf.raw_ops.AssignAddVariableOp(resource=_counter(), value=tf.constant(examples, tf.int64))


def read_counts(workers: int) -> list[int | None]:
    """Returns each worker's example count since its start; None for one that does not answer."""
    return [_read_count(worker) for worker in range(workers)]


def _read_count(worker: int) -> int | None:
    try:
        with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
            return int(tf.raw_ops.ReadVariableOp(resource=_counter(), dtype=tf.int64))
    except tf.errors.OpError:
        return None


def _counter() -> tf.Tensor:
    return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=_COUNTER)
