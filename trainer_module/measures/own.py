"""Metrics that Keras lacks: means of a value over the classes, or over the examples."""

from __future__ import annotations

from abc import abstractmethod

import tensorflow as tf
import tf_keras


class ConfusionMetric(tf_keras.metrics.Metric):
    """The base class of metrics that compute a value per class and average it over the classes.

    The predicted class is the most probable class.
    """

    def __init__(self, classes: int, name: str) -> None:
        """Creates the metric with an empty confusion matrix.

        Args:
          classes: the number of classes; if it is 2, predictions may consist of the probability of
            the second class only.
          name: the name of the metric.
        """
        super().__init__(name=name)
        self._classes = classes
        self._counts = self.add_weight("counts", (classes, classes), initializer="zeros")

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch to the confusion matrix.

        Args:
          y_true: the indices of the classes, [batch, 1].
          y_pred: the probabilities, [batch, 1 or classes].
          sample_weight: the weights of the examples, or None if all examples count alike.
        """
        is_binary = y_pred.shape[-1] == 1
        predicted = tf.cast(y_pred[:, 0] > 0.5, tf.int64) if is_binary else tf.argmax(y_pred, -1)
        actual = tf.reshape(tf.cast(y_true, tf.int64), [-1])
        weights = None if sample_weight is None else tf.reshape(sample_weight, [-1])
        self._counts.assign_add(
            tf.math.confusion_matrix(actual, predicted, self._classes, weights, self._counts.dtype)
        )

    @abstractmethod
    def class_values(
        self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor
    ) -> tf.Tensor:
        """Returns the value of each class, [classes].

        Args:
          correct: the number of correct predictions of each class (true positives).
          predicted: the number of predictions of each class.
          actual: the number of examples of each class.
        """

    def is_included(self, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns which classes the mean includes, [classes] bool.

        By default, the mean includes the classes that have examples or predictions.
        """
        return predicted + actual > 0

    def reset_state(self) -> None:
        """Resets the matrix to zeros, as Keras's own method only resets scalars."""
        self._counts.assign(tf.zeros_like(self._counts))

    def result(self) -> tf.Tensor:
        """Returns the mean of the values of the included classes."""
        correct = tf.linalg.diag_part(self._counts)
        predicted, actual = tf.reduce_sum(self._counts, 0), tf.reduce_sum(self._counts, 1)
        included = tf.cast(self.is_included(predicted, actual), correct.dtype)
        values = self.class_values(correct, predicted, actual) * included
        return tf.math.divide_no_nan(tf.reduce_sum(values), tf.reduce_sum(included))


class MacroPrecision(ConfusionMetric):
    """The mean precision over the classes, or 0 for a class that is never predicted."""

    def class_values(
        self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor
    ) -> tf.Tensor:
        """Returns the precision of each class."""
        return tf.math.divide_no_nan(correct, predicted)


class MacroRecall(ConfusionMetric):
    """The mean recall over the classes, or 0 for a class without examples."""

    def class_values(
        self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor
    ) -> tf.Tensor:
        """Returns the recall of each class."""
        return tf.math.divide_no_nan(correct, actual)


class MacroF1(ConfusionMetric):
    """The mean over the classes of the harmonic mean of precision and recall."""

    def class_values(
        self, correct: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor
    ) -> tf.Tensor:
        """Returns the F1 score of each class."""
        return tf.math.divide_no_nan(2 * correct, predicted + actual)


class BalancedAccuracy(MacroRecall):
    """The mean recall over the classes that have examples."""

    def is_included(self, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
        """Returns which classes have examples, [classes] bool."""
        del predicted
        return actual > 0


class RankError(tf_keras.metrics.MeanMetricWrapper):
    """The mean distance in ranks between the most probable class and the label's class."""

    def __init__(self, name: str) -> None:
        super().__init__(_rank_error, name=name)


class PoissonDeviance(tf_keras.metrics.MeanMetricWrapper):
    """The mean Poisson deviance.

    It is twice the log-likelihood of a perfect prediction minus that of the model's prediction.
    """

    def __init__(self, name: str) -> None:
        super().__init__(_poisson_deviance, name=name)


def _rank_error(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    predicted = tf.cast(tf.argmax(y_pred, -1), tf.float32)
    return tf.abs(predicted - tf.cast(y_true[:, 0], tf.float32))


def _poisson_deviance(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    label, mean = tf.cast(y_true[:, 0], tf.float32), y_pred[:, 0]
    # xlogy is 0 for a label of 0.
    log_ratio = tf.math.xlogy(label, tf.math.divide_no_nan(label, mean))
    return 2 * (log_ratio - label + mean)
