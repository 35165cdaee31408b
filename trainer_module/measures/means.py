"""Means of what each example comes to, where Keras has none."""

from __future__ import annotations

import tensorflow as tf
import tf_keras


class RankError(tf_keras.metrics.MeanMetricWrapper):
    """By how many ranks the most probable class is off."""

    def __init__(self, name: str) -> None:
        super().__init__(_rank_error, name=name)


class PoissonDeviance(tf_keras.metrics.MeanMetricWrapper):
    """Twice what a count's likelihood lacks of that of a perfect prediction."""

    def __init__(self, name: str) -> None:
        super().__init__(_poisson_deviance, name=name)


def _rank_error(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    chosen = tf.cast(tf.argmax(y_pred, -1), tf.float32)
    return tf.abs(chosen - tf.cast(y_true[:, 0], tf.float32))


def _poisson_deviance(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    truth, mean = tf.cast(y_true[:, 0], tf.float32), y_pred[:, 0]
    # x ln x is 0 at 0.
    surprise = tf.math.xlogy(truth, tf.math.divide_no_nan(truth, mean))
    return 2 * (surprise - truth + mean)
