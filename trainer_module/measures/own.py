"""Metrics that Keras has not: means over the classes, and over what each example comes to."""

from __future__ import annotations

from abc import abstractmethod

import tensorflow as tf
import tf_keras


class ConfusionMetric(tf_keras.metrics.Metric):
    """The mean over the classes that occur, of a class by the most probable one."""

    def __init__(self, classes: int, name: str) -> None:
        """Counts nothing yet.

        Args:
          classes: how many there are; of two a prediction is the probability of the second one.
          name: of the metric.
        """
        super().__init__(name=name)
        self._classes = classes
        self._counts = self.add_weight("counts", (classes, classes), initializer="zeros")

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Counts labels [batch, 1] and probabilities [batch, 1 or classes], by their weights."""
        is_binary = y_pred.shape[-1] == 1
        chosen = tf.cast(y_pred[:, 0] > 0.5, tf.int64) if is_binary else tf.argmax(y_pred, -1)
        truth = tf.reshape(tf.cast(y_true, tf.int64), [-1])
        weights = None if sample_weight is None else tf.reshape(sample_weight, [-1])
        self._counts.assign_add(
            tf.math.confusion_matrix(truth, chosen, self._classes, weights, self._counts.dtype)
        )

    @abstractmethod
    def of_classes(self, found: tf.Tensor, said: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """What each class comes to, [classes].

        Args:
          found: examples of the class that were said to be of it.
          said: all that were said to be of it.
          there: all that are of it.
        """

    def counts(self, said: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """Which classes the mean is over, [classes]: those that are there or were said to be."""
        return said + there > 0

    def reset_state(self) -> None:
        """Forgets all; Keras would write single numbers."""
        self._counts.assign(tf.zeros_like(self._counts))

    def result(self) -> tf.Tensor:
        """Returns the mean."""
        found = tf.linalg.diag_part(self._counts)
        said, there = tf.reduce_sum(self._counts, 0), tf.reduce_sum(self._counts, 1)
        occurs = tf.cast(self.counts(said, there), found.dtype)
        values = self.of_classes(found, said, there) * occurs
        return tf.math.divide_no_nan(tf.reduce_sum(values), tf.reduce_sum(occurs))


class MacroPrecision(ConfusionMetric):
    """Of what is said to be of a class, the share that is; 0 where nothing is."""

    def of_classes(self, found: tf.Tensor, said: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """By what was said."""
        return tf.math.divide_no_nan(found, said)


class MacroRecall(ConfusionMetric):
    """Of what is of a class, the share that is found; 0 where nothing is of it."""

    def of_classes(self, found: tf.Tensor, said: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """By what there is."""
        return tf.math.divide_no_nan(found, there)


class MacroF1(ConfusionMetric):
    """The harmonic mean of precision and recall."""

    def of_classes(self, found: tf.Tensor, said: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """By both."""
        return tf.math.divide_no_nan(2 * found, said + there)


class BalancedAccuracy(MacroRecall):
    """The mean recall of the classes that there are examples of."""

    def counts(self, said: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """Not those that are only ever predicted."""
        del said
        return there > 0


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
