"""What the process that coordinates parameter servers keeps: a copy of the model, and counts.

The coordinator does not know which worker took which step, so each counts its examples in a
variable of its own process, which its input pipeline adds to. A few batches that were prepared but
not used are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf
import tf_keras

_PART = 20
"""Bits of a part, which float32 holds: every strategy adds up float32, and not all add up int64."""
_PARTS = 4


def all_workers_equal(strategy: tf.distribute.Strategy, value: int) -> bool:
    """Returns whether all workers in step have the same value; returns once all of them have asked.

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


DatasetCreator = tf_keras.utils.experimental.DatasetCreator
"""What `fit` has each worker read by itself."""

_COUNTER = "scopeline_examples_drawn"


class CopyOnCoordinator(tf_keras.callbacks.Callback):
    """Keeps a copy of the model in this process, for parameter servers, and evaluates with it.

    The servers' workers would draw from the eval split at random; here every example comes up
    once. And a model whose variables are split among servers loses them when it is saved.
    """

    def __init__(self, copy: tf_keras.Model, read: Callable[[], tf.data.Dataset]) -> None:
        """Takes what it evaluates.

        Args:
          copy: a compiled model like the one that is trained, built outside of its scope.
          read: gives the examples to evaluate it on, in batches.
        """
        super().__init__()
        self.copy = copy
        self._read = read
        # `fit` calls in the scope of the servers' strategy; a thread of its own is outside of it.
        self._thread = ThreadPoolExecutor(max_workers=1)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds what it finds to the logs; must come before the callbacks that read them."""
        found = self._thread.submit(self._evaluate).result()
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in found.items()})

    def fetch(self) -> tf_keras.Model:
        """Returns the copy, with the weights that the servers have now."""
        parts = iter(self.model.weights)
        for weight in self.copy.weights:
            weight.assign(_joined(parts, weight.shape))
        return self.copy

    def _evaluate(self) -> dict[str, float]:
        return self.fetch().evaluate(self._read(), verbose=0, return_dict=True)


def _joined(parts: Iterator[tf.Variable], shape: tf.TensorShape) -> tf.Tensor:
    """Returns the next weight, of which several servers may hold a part of the rows each."""
    found = [tf.identity(next(parts))]
    while sum(len(part) for part in found if shape.rank) < (shape[0] if shape.rank else 0):
        found.append(tf.identity(next(parts)))
    return tf.concat(found, 0) if len(found) > 1 else found[0]


def count_from_zero() -> None:
    """Begins to count a worker's examples, where it is executed."""
    tf.raw_ops.AssignVariableOp(resource=_counter(), value=tf.constant(0, tf.int64))


def count(examples: int) -> None:
    """Adds examples, where it is executed."""
    tf.raw_ops.AssignAddVariableOp(resource=_counter(), value=tf.constant(examples, tf.int64))


def read_counts(workers: int) -> list[int | None]:
    """What each worker has counted since it was started; None for one that does not answer."""
    return [_read_count(worker) for worker in range(workers)]


def _read_count(worker: int) -> int | None:
    try:
        with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
            return int(tf.raw_ops.ReadVariableOp(resource=_counter(), dtype=tf.int64))
    except tf.errors.OpError:
        return None


def _counter() -> tf.Tensor:
    return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=_COUNTER)
