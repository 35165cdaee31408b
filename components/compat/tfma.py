"""Private parts of TensorFlow Model Analysis 0.52: the options and accumulators of its combiners.

The Evaluator sums statistics of whole batches (`components.evaluator.batched`), and TFMA derives
the metrics from the sums. TFMA has no public interface that takes sums, so the Evaluator reads the
private options of TFMA's combiners and creates their accumulators. This module identifies each
combiner by its name and by hashes of its source. If a combiner has changed or is missing, TFMA's
own combiner measures example by example, and run.log reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow_model_analysis.contrib.aggregates import binary_confusion_matrices as aggregates
from tensorflow_model_analysis.metrics import binary_confusion_matrices

from trainer_module.compat.insides import Known

PerRow = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A function from labels [rows, 1] and outputs [rows, n] to the metric's value for each row."""


@dataclass(frozen=True)
class Combiners:
    """Combiners that one of the Evaluator's batched statistics replaces."""

    names: tuple[str, ...]
    """The names of the combiners' classes, as `class_name` returns them."""
    known: Known
    """The hashes of the code that the statistic reproduces."""


_METRICS = "tensorflow_model_analysis.metrics"
_INPUTS: Known = {f"{_METRICS}.metric_util": {"to_label_prediction_example_weight": "0e08ed6218fe"}}
"""The function that reads labels, predictions and weights for most combiners."""


def _combiners(module: str, names: Sequence[str], hashes: dict[str, str], more: Known) -> Combiners:
    module = f"{_METRICS}.{module}"
    return Combiners(tuple(f"{module}:{name}" for name in names), {module: hashes, **more})


BINARY_MATRICES = _combiners(
    "binary_confusion_matrices",
    ["_BinaryConfusionMatrixCombiner"],
    {"_BinaryConfusionMatrixCombiner": "f67b98fc2067"},
    {
        "tensorflow_model_analysis.contrib.aggregates.binary_confusion_matrices": {
            "BinaryConfusionMatrices": "95bc34319392"
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


def class_name(kind: type) -> str:
    """Returns the name of a class in the form `package.module:Class`, as `Combiners` has it."""
    return f"{kind.__module__}:{kind.__qualname__}"


def is_plain(combiner: Any) -> bool:
    """Returns whether a combiner measures the whole output of a model with one output: not a single
    class, nor an average over classes.
    """
    attributes = vars(combiner)
    keys = [attributes[name] for name in ("_key", "_metric_key") if name in attributes]
    keys += attributes.get("_keys", [])
    if not keys and "_sub_key" not in attributes:
        return False  # The combiner does not contain the key of its metric.
    names = ("_aggregation_type", "_class_weights", "_sub_key", "_output_name")
    options = [attributes.get(name) for name in names]
    return not any(options) and not any(key.sub_key or key.output_name for key in keys)


def weighs_examples(combiner: Any) -> bool | None:
    """Returns whether a combiner weighs examples, or None if its attributes do not tell."""
    attributes = vars(combiner)
    # Some of TFMA's combiners have an attribute; the others have the key of their metric.
    if "_example_weighted" in attributes:
        return bool(attributes["_example_weighted"])
    return bool(attributes["_key"].example_weighted) if "_key" in attributes else None


def samples_examples(combiner: Any) -> bool:
    """Returns whether a combiner of BINARY_MATRICES keeps a sample of the examples."""
    return combiner._example_id_key is not None


def matrix_thresholds(combiner: Any) -> list[float]:
    """Returns the thresholds of a combiner of BINARY_MATRICES."""
    return list(combiner._binary_confusion_matrices._thresholds)


def takes_shares(combiner: Any) -> bool:
    """Returns whether a combiner of BINARY_MATRICES treats a label between 0 and 1 as the share of
    the positive class.
    """
    return bool(combiner._binary_confusion_matrices._enable_fractional_labels)


def matrix_accumulator(thresholds: Sequence[float], counts: Iterable[Sequence[float]]) -> Any:
    """Returns the accumulator of a combiner of BINARY_MATRICES.

    Args:
      counts: the sums of weights for each threshold, in the order of the fields of TFMA's `Matrix`.
    """
    no_examples: list[str] = []
    return {
        threshold: aggregates._ThresholdEntry(aggregates.Matrix(*matrix), *([no_examples] * 4))
        for threshold, matrix in zip(thresholds, counts, strict=True)
    }


def class_thresholds(combiner: Any) -> list[float]:
    """Returns the thresholds of a combiner of CLASS_MATRIX."""
    return list(combiner._thresholds)


def is_by_prediction(combiner: Any) -> bool:
    """Returns whether a combiner of HISTOGRAM sorts examples into buckets by their predictions, and
    its labels may be shares.
    """
    return bool(combiner._prediction_based_bucketing and combiner._fractional_labels)


@dataclass(frozen=True)
class Scale:
    """The buckets of a combiner of HISTOGRAM.

    The buckets have equal widths. An underflow bucket is before and an overflow bucket after them.
    """

    left: float
    """The lower bound of the first bucket."""
    width: float
    """The sum of the buckets' widths."""
    buckets: int

    @classmethod
    def of(cls, combiner: Any) -> Scale:
        """Returns the scale of a combiner."""
        return cls(combiner._left, combiner._range, combiner._num_buckets)


def interpolated_thresholds(count: int) -> np.ndarray:
    """Returns TFMA's thresholds from -EPSILON to 1 + EPSILON, [count]."""
    return np.array(binary_confusion_matrices._interpolated_thresholds(count))


def epsilon() -> float:
    """Returns the distance of TFMA's first and last threshold from 0 and 1."""
    return float(binary_confusion_matrices._EPSILON)


def has_logits_or_smoothing(combiner: Any) -> bool:
    """Returns whether a combiner of BINARY_CROSS_ENTROPY reads logits or smooths labels."""
    return bool(combiner._from_logits or combiner._label_smoothing)


def has_one_output(combiner: Any) -> bool:
    """Returns whether all metrics of a combiner of KERAS_METRICS measure all classes of the same
    output.
    """
    return not combiner._sub_key_in_config and len(combiner._output_names) == 1


def metrics_of(combiner: Any) -> list[tf_keras.metrics.Metric]:
    """Returns the metrics of a combiner of KERAS_METRICS that has one output."""
    combiner.setup()
    (metrics,) = combiner._metrics.values()
    return list(metrics)


def per_row(metric: tf_keras.metrics.Metric) -> PerRow | None:
    """Returns the function that a metric of tf_keras 2.21 averages, or None for other metrics.

    A `MeanMetricWrapper` returns the mean of its function. The returned function calls the wrapped
    function as the metric calls it.
    """
    kind = type(metric)
    is_keras = kind.__module__.startswith("tf_keras.") and "update_state" not in vars(kind)
    if not (is_keras and isinstance(metric, tf_keras.metrics.MeanMetricWrapper)):
        return None
    autograph = tf.__internal__.autograph
    function = autograph.tf_convert(metric._fn, autograph.control_status_ctx())
    return lambda labels, predictions: np.asarray(
        function(
            tf.cast(labels, metric.dtype), tf.cast(predictions, metric.dtype), **metric._fn_kwargs
        )
    )
