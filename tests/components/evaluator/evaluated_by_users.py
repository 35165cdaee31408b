"""A metric of a user's: Keras's way of writing one."""

from __future__ import annotations

from typing import Any

import tf_keras


class Bias(tf_keras.metrics.Mean):
    """How much too large predictions are."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().update_state(y_pred - y_true, sample_weight)
