"""Mixup: each example is a mixture of two, and so is its label (Zhang et al., 2018).

A mixed label is [batch, 3]: both labels, and the share of the first. The loss of such a label is
that of both by their shares. Of cross-entropy that is the loss of the mixed one-hot label, as it is
of every loss that is linear in the label; and no one-hot labels of many classes are made.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.tasks.units import WrappedLoss

Examples = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor | None]


def draw_shares(count: int, seeds: tf.Tensor, alpha: float) -> tf.Tensor:
    """Draws from Beta(alpha, alpha): [count] float32."""
    # Two numbers of a Gamma distribution, of which the first has that share of their sum.
    first, second = tf.unstack(tf.random.stateless_gamma([2, count], seeds, alpha))
    return tf.math.divide_no_nan(first, first + second)


def mix(batch: Examples, others: Examples, shares: tf.Tensor) -> Examples:
    """Mixes examples with as many others; what they weigh decides how much their labels count.

    Args:
      batch: features [batch, ...] float32 each, labels [batch, 1], and weights [batch] or None.
      others: the same of the others.
      shares: of the first ones, [batch].
    """
    (features, label, weights), (other_features, other_label, other_weights) = batch, others
    mixed = {
        name: _blend(values, other_features[name], shares) for name, values in features.items()
    }
    if weights is not None:
        both = _blend(weights, other_weights, shares)
        weights, shares = both, tf.math.divide_no_nan(shares * weights, both)
    parts = [label, other_label, shares[:, tf.newaxis]]
    return mixed, tf.concat([tf.cast(part, tf.float32) for part in parts], 1), weights


def _blend(values: tf.Tensor, others: tf.Tensor, shares: tf.Tensor) -> tf.Tensor:
    shares = tf.reshape(shares, [-1, *[1] * (values.shape.rank - 1)])
    return shares * values + (1 - shares) * others


def _is_mixed(label: tf.Tensor) -> bool:
    """Whether a label is of two examples; those that are evaluated have one."""
    return bool(label.shape[-1] == 3)


@tf_keras.saving.register_keras_serializable("scopeline")
class MixedLoss(WrappedLoss):
    """The loss of labels, mixed or not, by a loss of labels that are not."""

    def __init__(self, loss: Any, name: str = "mixed_loss", **options: Any) -> None:
        """Takes the loss of one label."""
        super().__init__(loss, name, **options)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Losses [batch]."""
        if not _is_mixed(y_true):
            return self.wrapped(y_true, y_pred)
        share, first, second = y_true[:, 2], y_true[:, :1], y_true[:, 1:2]
        return share * self.wrapped(first, y_pred) + (1 - share) * self.wrapped(second, y_pred)


def of_larger_share(metric: tf_keras.metrics.Metric) -> tf_keras.metrics.Metric:
    """The metric, which takes a mixed label for that of its larger share."""
    update = metric.update_state

    def update_state(y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None) -> Any:
        if _is_mixed(y_true):
            y_true = tf.where(y_true[:, 2:] < 0.5, y_true[:, 1:2], y_true[:, :1])
        return update(y_true, y_pred, sample_weight)

    metric.update_state = update_state
    return metric
