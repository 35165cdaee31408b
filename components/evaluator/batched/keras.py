"""The twin of TFMA's combiner of Keras metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow_model_analysis.metrics import tf_metric_wrapper
from tf_keras.src.metrics.base_metric import MeanMetricWrapper

from components.evaluator.batched.means import weighed
from components.evaluator.batched.rows import ModelRows, NotByBatches, weights_of
from components.evaluator.batched.twins import SumTwin, twin_for

PerRow = Callable[[np.ndarray, np.ndarray], np.ndarray]


@twin_for(tf_metric_wrapper._CompilableMetricsCombiner)
class KerasMeans(SumTwin):
    """Those of Keras's metrics that are means of a value per row.

    Others, which may keep whatever state they like, are TFMA's to compute.
    """

    known = {
        "tensorflow_model_analysis.metrics.tf_metric_wrapper": {
            "_CompilableMetricsCombiner": "416cf2d6f77f",
        },
        "tf_keras.src.metrics.base_metric": {
            "MeanMetricWrapper": "757de06333ca",
            "Reduce": "3b79958b69a0",
        },
        "tf_keras.src.metrics.regression_metrics": {
            "RootMeanSquaredError": "47d9d2bb86b2",
        },
        "tensorflow_model_analysis.metrics.metric_util": {
            "to_label_prediction_example_weight": "0e08ed6218fe",
        },
    }

    def __init__(self, combiner: Any) -> None:
        metrics = metrics_of(combiner)
        self._per_row = [found for metric in metrics if (found := _per_row(metric))]
        self.width = 2 * len(metrics)
        super().__init__(combiner)

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """Of one output, whose metrics are all such means."""
        if combiner._sub_key_in_config or len(combiner._output_names) != 1:
            return False
        return super().suits(combiner) and all(map(_per_row, metrics_of(combiner)))

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


def metrics_of(combiner: Any) -> list[tf_keras.metrics.Metric]:
    """The metrics of its one output."""
    combiner.setup()
    (metrics,) = combiner._metrics.values()
    return list(metrics)


def _per_row(metric: tf_keras.metrics.Metric) -> PerRow | None:
    """From labels [rows, 1] and outputs [rows, n] to a value per row; None of other metrics."""
    # Their own `update_state` may do anything: the exact classes alone.
    if type(metric) is tf_keras.metrics.RootMeanSquaredError:
        return _squared_errors
    if isinstance(metric, MeanMetricWrapper) and _is_of_keras(type(metric)):
        function = tf.__internal__.autograph.tf_convert(
            metric._fn, tf.__internal__.autograph.control_status_ctx()
        )
        return lambda labels, said: np.asarray(
            function(
                tf.cast(labels, metric.dtype), tf.cast(said, metric.dtype), **metric._fn_kwargs
            )
        )
    return None


def _squared_errors(labels: np.ndarray, said: np.ndarray) -> np.ndarray:
    if said.shape[1] != 1:
        raise NotByBatches("squared errors of several outputs")
    return np.square(labels - said)[:, 0]


def _is_of_keras(kind: type) -> bool:
    return kind.__module__.startswith("tf_keras.") and "update_state" not in vars(kind)
