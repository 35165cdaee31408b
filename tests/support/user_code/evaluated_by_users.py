"""Metrics of a user's: Keras's way of writing them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras


class Bias(tf_keras.metrics.Mean):
    """How much too large predictions are."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().update_state(y_pred - y_true, sample_weight)


class Cost(tf_keras.metrics.Mean):
    """What is missed costs more than a false alarm."""

    def __init__(self, name: str = "cost", per_miss: float = 1.0, **options: Any) -> None:
        super().__init__(name, **options)
        self.per_miss = per_miss

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        said = tf.cast(y_pred > 0.5, tf.float32)
        truth = tf.cast(y_true, tf.float32)
        cost = self.per_miss * truth * (1 - said) + said * (1 - truth)
        return super().update_state(cost, sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "per_miss": self.per_miss}
