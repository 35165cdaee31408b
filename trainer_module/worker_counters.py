"""How many examples each worker of a parameter server cluster has drawn.

The coordinator does not know who took which step, so each worker counts in a variable of its own
process, which its input pipeline adds to. A few batches that were prepared but not used are in it.
"""

from __future__ import annotations

import tensorflow as tf

_NAME = "scopeline_examples_drawn"


def count_from_zero() -> None:
    """Begins to count, where it is executed."""
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
    return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=_NAME)
