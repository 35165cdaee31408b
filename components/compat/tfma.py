"""TensorFlow Model Analysis, as of 0.52: what its combiners hold, and what they accumulate.

The Evaluator adds metrics up by whole batches (`components.evaluator.batched`), and TFMA makes the
metrics of the sums. So it has to know which combiner a computation has, by which private options,
and what its accumulator looks like. The public way would be an interface of TFMA that takes sums;
it has none. Each combiner is named by text here and known by prints of its source: where it is
another or is missing, no twin takes its place, TFMA measures example by example, and run.log says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow_model_analysis.contrib.aggregates import (
    binary_confusion_matrices as aggregates,
)
from tensorflow_model_analysis.metrics import binary_confusion_matrices

from trainer_module.compat.insides import Known

PerRow = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From labels [rows, 1] and outputs [rows, n] to what Keras makes of each row."""


@dataclass(frozen=True)
class Combiners:
    """Combiners that work alike."""

    names: tuple[str, ...]
    """Of their classes, as `name_of` gives them."""
    known: Known
    """The code whose sums and options a twin reproduces."""


_METRICS = "tensorflow_model_analysis.metrics"
_INPUTS: Known = {f"{_METRICS}.metric_util": {"to_label_prediction_example_weight": "0e08ed6218fe"}}
"""What reads labels, predictions and weights for most combiners."""


def _combiners(module: str, names: Sequence[str], prints: dict[str, str], more: Known) -> Combiners:
    module = f"{_METRICS}.{module}"
    return Combiners(tuple(f"{module}:{name}" for name in names), {module: prints, **more})


BINARY_MATRICES = _combiners(
    "binary_confusion_matrices",
    ["_BinaryConfusionMatrixCombiner"],
    {"_BinaryConfusionMatrixCombiner": "f67b98fc2067"},
    {
        "tensorflow_model_analysis.contrib.aggregates.binary_confusion_matrices": {
            "BinaryConfusionMatrices": "95bc34319392",
        },
        **_INPUTS,
    },
)
HISTOGRAM = _combiners(
    "calibration_histogram",
    ["_CalibrationHistogramCombiner"],
    {"_CalibrationHistogramCombiner": "616305c35424"},
    {
        f"{_METRICS}.binary_confusion_matrices": {
            "_interpolated_thresholds": "d604d692e6ee",
            "_histogram_to_binary_confusion_matrices": "25e887ebf5aa",
        },
        **_INPUTS,
    },
)
CLASS_MATRIX = _combiners(
    "multi_class_confusion_matrix_metrics",
    ["_MultiClassConfusionMatrixCombiner"],
    {"_MultiClassConfusionMatrixCombiner": "f41805ea02c6"},
    _INPUTS,
)
EXAMPLE_COUNT = _combiners(
    "example_count", ["_ExampleCountCombiner"], {"_ExampleCountCombiner": "59dbc106555a"}, {}
)
ABSOLUTE_ERROR, SQUARED_ERROR, PERCENTAGE_ERROR = (
    f"{_METRICS}.mean_regression_error:_Mean{kind}ErrorCombiner"
    for kind in ("Absolute", "Squared", "AbsolutePercentage")
)
REGRESSION_ERRORS = Combiners(
    (ABSOLUTE_ERROR, SQUARED_ERROR, PERCENTAGE_ERROR),
    {
        f"{_METRICS}.mean_regression_error": {
            "_MeanRegressionErrorCombiner": "97c249118a3a",
            "_MeanAbsoluteErrorCombiner": "16d9e3adda7b",
            "_MeanSquaredErrorCombiner": "64c8a3d48c77",
            "_MeanAbsolutePercentageErrorCombiner": "f4b4d3935900",
        },
        **_INPUTS,
    },
)
BINARY_CROSS_ENTROPY = _combiners(
    "cross_entropy_metrics",
    ["_BinaryCrossEntropyCombiner"],
    {"_CrossEntropyCombiner": "701bfe3d7318", "_BinaryCrossEntropyCombiner": "f1b1e70553b7"},
    _INPUTS,
)
SQUARED_CORRELATION = _combiners(
    "squared_pearson_correlation",
    ["_SquaredPearsonCorrelationCombiner"],
    {"_SquaredPearsonCorrelationCombiner": "6b3c5ce95cd2"},
    _INPUTS,
)
KERAS_METRICS = _combiners(
    "tf_metric_wrapper",
    ["_CompilableMetricsCombiner"],
    {"_CompilableMetricsCombiner": "416cf2d6f77f"},
    {
        "tf_keras.src.metrics.base_metric": {
            "MeanMetricWrapper": "757de06333ca",
            "Reduce": "3b79958b69a0",
        },
        "tf_keras.src.metrics.regression_metrics": {"RootMeanSquaredError": "47d9d2bb86b2"},
        **_INPUTS,
    },
)


def name_of(kind: type) -> str:
    """What `Combiners` call a class, such as `package.module:Class`."""
    return f"{kind.__module__}:{kind.__qualname__}"


def is_plain(combiner: Any) -> bool:
    """Returns whether it is of a metric of the whole output: none of one class, or averaged by
    classes.
    """
    held = vars(combiner)
    keys = [held[name] for name in ("_key", "_metric_key") if name in held]
    keys += held.get("_keys", [])
    if not keys and "_sub_key" not in held:
        return False  # Nothing says what it is of.
    names = ("_aggregation_type", "_class_weights", "_sub_key", "_output_name")
    options = [held.get(name) for name in names]
    return not any(options) and not any(key.sub_key or key.output_name for key in keys)


def weighs_examples(combiner: Any) -> bool | None:
    """Returns whether it counts examples by their weights; None where it does not say so."""
    held = vars(combiner)
    # Some combiners of TFMA's know it by themselves, ours by the key of their metric.
    if "_example_weighted" in held:
        return bool(held["_example_weighted"])
    return bool(held["_key"].example_weighted) if "_key" in held else None


def samples_examples(combiner: Any) -> bool:
    """Returns whether one of BINARY_MATRICES keeps some of the examples."""
    return combiner._example_id_key is not None


def matrix_thresholds(combiner: Any) -> list[float]:
    """Returns the thresholds of one of BINARY_MATRICES."""
    return list(combiner._binary_confusion_matrices._thresholds)


def takes_shares(combiner: Any) -> bool:
    """Returns whether one of BINARY_MATRICES takes labels between 0 and 1 for shares of both
    classes.
    """
    return bool(combiner._binary_confusion_matrices._enable_fractional_labels)


def matrix_accumulator(thresholds: Sequence[float], counts: Iterable[Sequence[float]]) -> Any:
    """What one of BINARY_MATRICES accumulates.

    Args:
      thresholds: [thresholds].
      counts: for each, weights in the order of TFMA's matrix.
    """
    no_examples: list[str] = []
    return {
        threshold: aggregates._ThresholdEntry(aggregates.Matrix(*matrix), *([no_examples] * 4))
        for threshold, matrix in zip(thresholds, counts, strict=True)
    }


def class_thresholds(combiner: Any) -> list[float]:
    """Returns the thresholds of one of CLASS_MATRIX."""
    return list(combiner._thresholds)


def is_by_prediction(combiner: Any) -> bool:
    """Returns whether one of HISTOGRAM has buckets of predictions, and labels may be shares."""
    return bool(combiner._prediction_based_bucketing and combiner._fractional_labels)


@dataclass(frozen=True)
class Scale:
    """The buckets of one of HISTOGRAM: all of the same width, between one below and one above."""

    left: float
    width: float
    """Of all of them together."""
    buckets: int

    @classmethod
    def of(cls, combiner: Any) -> Scale:
        """That of a combiner."""
        return cls(combiner._left, combiner._range, combiner._num_buckets)


def interpolated_thresholds(count: int) -> np.ndarray:
    """So many thresholds from -EPSILON to 1 + EPSILON, [count], as TFMA spreads them."""
    return np.array(binary_confusion_matrices._interpolated_thresholds(count))


def epsilon() -> float:
    """By what the first and the last of TFMA's thresholds lie beyond 0 and 1."""
    return float(binary_confusion_matrices._EPSILON)


def has_logits_or_smoothing(combiner: Any) -> bool:
    """Returns whether one of BINARY_CROSS_ENTROPY reads logits, or smooths labels."""
    return bool(combiner._from_logits or combiner._label_smoothing)


def has_one_output(combiner: Any) -> bool:
    """Returns whether the metrics of one of KERAS_METRICS are all of one output, and of all its
    classes.
    """
    return not combiner._sub_key_in_config and len(combiner._output_names) == 1


def metrics_of(combiner: Any) -> list[tf_keras.metrics.Metric]:
    """Returns the metrics of the one output of one of KERAS_METRICS."""
    combiner.setup()
    (metrics,) = combiner._metrics.values()
    return list(metrics)


def per_row(metric: tf_keras.metrics.Metric) -> PerRow | None:
    """What a metric of tf_keras, as of 2.21, makes the mean of; None where it is no such mean.

    A metric of Keras's that wraps a function is its mean: the function is called as the metric
    calls it. Another class may have an `update_state` that does anything.
    """
    kind = type(metric)
    is_keras = kind.__module__.startswith("tf_keras.") and "update_state" not in vars(kind)
    if not (is_keras and isinstance(metric, tf_keras.metrics.MeanMetricWrapper)):
        return None
    autograph = tf.__internal__.autograph
    function = autograph.tf_convert(metric._fn, autograph.control_status_ctx())
    return lambda labels, said: np.asarray(
        function(tf.cast(labels, metric.dtype), tf.cast(said, metric.dtype), **metric._fn_kwargs)
    )
