"""The twin of TFMA's combiner of Keras metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import tf_keras

from components.compat import tfma
from components.evaluator.batched.means import weighed
from components.evaluator.batched.rows import ModelRows, NotByBatches, weights_of
from components.evaluator.batched.twins import SumTwin, twin_for


@twin_for(tfma.KERAS_METRICS)
class KerasMeans(SumTwin):
    """Those of Keras's metrics that are means of a value per row.

    Others, which may keep whatever state they like, are TFMA's to compute.
    """

    def __init__(self, combiner: Any) -> None:
        metrics = tfma.metrics_of(combiner)
        self._per_row = [found for metric in metrics if (found := _per_row(metric))]
        self.width = 2 * len(metrics)
        super().__init__(combiner)

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """Of one output, whose metrics are all such means."""
        if not tfma.has_one_output(combiner):
            return False
        return super().suits(combiner) and all(map(_per_row, tfma.metrics_of(combiner)))

    def values(self, batch: ModelRows) -> np.ndarray:
        """The value of each metric, and the weight."""
        weights, labels = weights_of(self.combiner, batch), batch.labels[:, np.newaxis]
        columns = []
        for per_row in self._per_row:
            values = per_row(labels, batch.predictions)
            if values.size != len(labels):
                raise NotByBatches("a Keras metric that is no mean over the rows")
            # Of one row, Keras drops the axis.
            columns.append(weighed(values.reshape(-1), weights))
        return np.concatenate(columns, axis=1)

    def accumulator(self, number: int) -> Any:
        """TFMA's accumulator, with the weights that Keras's metrics would have."""
        filled = self.combiner.create_accumulator()
        for index, (total, weight) in enumerate(self.totals[number].reshape(-1, 2)):
            filled.add_weights(0, index, [np.float32(total), np.float32(weight)])
        return filled


def _per_row(metric: tf_keras.metrics.Metric) -> tfma.PerRow | None:
    """From labels [rows, 1] and outputs [rows, n] to a value per row; None of other metrics."""
    # Its own `update_state` takes squares and `result` a root: the exact class alone.
    if type(metric) is tf_keras.metrics.RootMeanSquaredError:
        return _squared_errors
    return tfma.per_row(metric)


def _squared_errors(labels: np.ndarray, said: np.ndarray) -> np.ndarray:
    if said.shape[1] != 1:
        raise NotByBatches("squared errors of several outputs")
    return np.square(labels - said)[:, 0]
