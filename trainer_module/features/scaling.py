"""Numbers brought to a scale, side by side: one analysis of all columns that are scaled alike."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft


def z_scores(numbers: tf.Tensor) -> tf.Tensor:
    """Mean 0 and variance 1 in each column.

    Args:
      numbers: [batch, n] float32, NaN where missing.

    Returns:
      The same shape, 0 where missing.
    """
    present = tf.where(~tf.math.is_nan(numbers))
    # A sparse tensor keeps the missing values out of the mean and the variance.
    sparse = tf.SparseTensor(present, tf.gather_nd(numbers, present), tf.shape(numbers, tf.int64))
    scores = tf.sparse.to_dense(tft.scale_to_z_score(sparse, elementwise=True))
    # A column that is always missing in the train split has no mean.
    return tf.where(tf.math.is_nan(scores), 0.0, scores)
