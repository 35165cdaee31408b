"""Metrics that Keras lacks: means over the classes, and over examples."""

from __future__ import annotations

from abc import abstractmethod

import tensorflow as tf
import tf_keras


class ConfusionMetric(tf_keras.metrics.Metric):
    """The base class of metrics that average a value per class over the classes that occur.

    The predicted class is the most probable one.
    """

    def __init__(self, classes: int, name: str) -> None:
        """Creates the metric with an empty confusion matrix.

        Args:
          classes: the number of classes; with two, a prediction is the probability of the second
            one.
          name: the name of the metric.
        """
        super().__init__(name=name)
        self._classes = classes
        self._counts = self.add_weight("counts", (classes, classes), initializer="zeros")

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds labels [batch, 1] and probabilities [batch, 1 or classes], with weights, to the
        matrix.
        """
        is_binary = y_pred.shape[-1] == 1
        chosen = tf.cast(y_pred[:, 0] > 0.5, tf.int64) if is_binary else tf.argmax(y_pred, -1)
        truth = tf.reshape(tf.cast(y_true, tf.int64), [-1])
        weights = None if sample_weight is None else tf.reshape(sample_weight, [-1])
        self._counts.assign_add(
            tf.math.confusion_matrix(truth, chosen, self._classes, weights, self._counts.dtype)
        )

    @abstractmethod
    def of_classes(self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns the value of each class, [classes].

        Args:
          correct: the number of correct predictions of each class (true positives).
          predicted: the number of predictions of each class.
          actual: the number of examples of each class.
        """

    def counts(self, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns which classes the mean includes, [classes]: those that occur or are predicted."""
        return predicted + actual > 0

    def reset_state(self) -> None:
        """Resets the matrix to zeros; Keras's method supports only scalars."""
        self._counts.assign(tf.zeros_like(self._counts))

    def result(self) -> tf.Tensor:
        """Returns the mean over the included classes."""
        correct = tf.linalg.diag_part(self._counts)
        predicted, actual = tf.reduce_sum(self._counts, 0), tf.reduce_sum(self._counts, 1)
        occurs = tf.cast(self.counts(predicted, actual), correct.dtype)
        values = self.of_classes(correct, predicted, actual) * occurs
        return tf.math.divide_no_nan(tf.reduce_sum(values), tf.reduce_sum(occurs))


class MacroPrecision(ConfusionMetric):
    """The mean precision over the classes; 0 for a class that is never predicted."""

    def of_classes(self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns the precision of each class."""
        return tf.math.divide_no_nan(correct, predicted)


class MacroRecall(ConfusionMetric):
    """The mean recall over the classes; 0 for a class without examples."""

    def of_classes(self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns the recall of each class."""
        return tf.math.divide_no_nan(correct, actual)


class MacroF1(ConfusionMetric):
    """The mean over the classes of the harmonic mean of precision and recall."""

    def of_classes(self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns the F1 score of each class."""
        return tf.math.divide_no_nan(2 * correct, predicted + actual)


class BalancedAccuracy(MacroRecall):
    """The mean recall over the classes that have examples."""

    def counts(self, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns which classes have examples, [classes]."""
        del predicted
        return actual > 0


class RankError(tf_keras.metrics.MeanMetricWrapper):
    """The mean distance, in ranks, between the most probable class and the label."""

    def __init__(self, name: str) -> None:
        super().__init__(_rank_error, name=name)


class PoissonDeviance(tf_keras.metrics.MeanMetricWrapper):
    """The Poisson deviance: twice the difference in log-likelihood to a perfect prediction."""

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
