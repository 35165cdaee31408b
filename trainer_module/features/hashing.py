"""Values as indices that their hashes give: no vocabulary, however many there are."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.features.scaling import limit_indices


def hash_values(values: tf.Tensor, buckets: int, nothing: str | None = None) -> tf.Tensor:
    """Indices of string values, the same shape, int64.

    Args:
      values: of any shape.
      buckets: how many indices there are for them.
      nothing: a value that is none; index 0 is for it alone, and the buckets come after it.
    """
    hashed = tf.strings.to_hash_bucket_fast(values, buckets)
    if nothing is None:
        return limit_indices(hashed, buckets)
    indices = tf.where(values == nothing, tf.constant(0, tf.int64), hashed + 1)
    return limit_indices(indices, buckets + 1)
