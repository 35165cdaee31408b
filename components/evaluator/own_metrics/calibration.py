"""Whether predicted probabilities come true: the calibration error, and the curve behind it.

Of two classes the probability is that of the positive one; of several it is that of the most
probable one, its confidence, which is compared with how often it is right: Guo et al., 2017, "On
Calibration of Modern Neural Networks", arXiv:1706.04599.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import (
    calibration_histogram,
    calibration_plot,
    metric_types,
    metric_util,
)
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2

from components.evaluator.own_metrics.combining import KeyedCombiner

BINS = 10
"""Of equal widths, from 0 to 1."""

Bins = np.ndarray
"""[BINS, 3] float64: of the predictions in each what came true, the probabilities, and weights."""


def expected_calibration_error(bins: Bins) -> float:
    """The mean distance of what was said from what came true, over the bins by their weight.

    Args:
      bins: of predictions.

    Returns:
      NaN of no predictions, or where one is not a number.
    """
    true, said, weights = bins.sum(axis=0).tolist()
    if not weights or math.isnan(true + said):
        return math.nan
    return float(np.abs(bins[:, 0] - bins[:, 1]).sum() / weights)


class CalibrationError(metric_types.Metric):
    """How far the probabilities of the positive class are from its share, by bins of them."""

    def __init__(self, name: str) -> None:
        super().__init__(metric_util.merge_per_key_computations(_binary_error), name=name)


def _binary_error(
    name: str,
    eval_config: config_pb2.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    # The histogram is that of TFMA's areas under curves, counted once for all of them.
    computations = calibration_histogram.calibration_histogram(
        eval_config=eval_config,
        model_name=model_name,
        output_name=output_name,
        example_weighted=example_weighted,
    )
    (histogram,) = computations[-1].keys
    key = metric_types.MetricKey(
        name, model_name=model_name, output_name=output_name, example_weighted=example_weighted
    )

    def result(metrics: Mapping[metric_types.MetricKey, Any]) -> dict[Any, float]:
        bins, buckets = np.zeros((BINS, 3)), calibration_histogram.DEFAULT_NUM_BUCKETS
        for one in metrics[histogram]:
            # Its first and its last bucket hold what is below 0, and from 1 on.
            place = min(max((one.bucket_id - 1) * BINS // buckets, 0), BINS - 1)
            bins[place] += one.weighted_labels, one.weighted_predictions, one.weighted_examples
        return {key: expected_calibration_error(bins)}

    derived = metric_types.DerivedMetricComputation(keys=[key], result=result)
    return [*computations, derived]


class TopLabelCalibrationError(metric_types.Metric):
    """How far the confidences in the most probable class are from how often it is right."""

    def __init__(self, name: str) -> None:
        super().__init__(metric_util.merge_per_key_computations(_top_label_error), name=name)


def _top_label_error(
    name: str,
    eval_config: config_pb2.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    key = metric_types.MetricKey(
        name, model_name=model_name, output_name=output_name, example_weighted=example_weighted
    )
    return _of_top_labels(key, eval_config, expected_calibration_error)


class TopLabelCalibrationPlot(metric_types.Metric):
    """The bins of the calibration error, as TFMA keeps those of two classes for its views."""

    def __init__(self, name: str = calibration_plot.CALIBRATION_PLOT_NAME) -> None:
        super().__init__(metric_util.merge_per_key_computations(_top_label_plot), name=name)


def _top_label_plot(
    name: str,
    eval_config: config_pb2.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    key = metric_types.PlotKey(
        name, model_name=model_name, output_name=output_name, example_weighted=example_weighted
    )
    return _of_top_labels(key, eval_config, _buckets)


def _buckets(bins: Bins) -> metrics_for_slice_pb2.CalibrationHistogramBuckets:
    buckets = metrics_for_slice_pb2.CalibrationHistogramBuckets()
    for place, (true, said, weight) in enumerate(bins.tolist()):
        buckets.buckets.add(
            lower_threshold_inclusive=place / BINS,
            upper_threshold_exclusive=(place + 1) / BINS if place + 1 < BINS else math.inf,
            total_weighted_label={"value": true},
            total_weighted_refined_prediction={"value": said},
            num_weighted_examples={"value": weight},
        )
    return buckets


def _of_top_labels(
    key: metric_types.MetricKey | metric_types.PlotKey,
    eval_config: config_pb2.EvalConfig | None,
    of_bins: Callable[[Bins], Any],
) -> metric_types.MetricComputations:
    """What follows from the bins of the key's model and output."""
    bins = metric_types.MetricKey(
        f"_top_label_bins:{BINS}",
        model_name=key.model_name,
        output_name=key.output_name,
        example_weighted=key.example_weighted,
    )

    def result(metrics: Mapping[metric_types.MetricKey, Any]) -> dict[Any, Any]:
        return {key: of_bins(metrics[bins])}

    combiner = TopLabelCombiner(bins, eval_config)
    return [
        metric_types.MetricComputation(keys=[bins], preprocessors=None, combiner=combiner),
        metric_types.DerivedMetricComputation(keys=[key], result=result),
    ]


def top_labels(truth: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What rows add to the bins.

    Args:
      truth: classes, [rows].
      predicted: their probabilities, [rows, classes].

    Returns:
      [rows] int64 the bin of each, and [rows, 3] float64 what it adds to that by a weight of 1.
    """
    chosen = predicted.argmax(1)
    confidence = np.take_along_axis(predicted, chosen[:, np.newaxis], 1)[:, 0].astype(np.float64)
    # What is not a number stays one in the sums, and is in the first bin.
    places = np.clip(np.nan_to_num(confidence) * BINS, 0, BINS - 1).astype(np.int64)
    is_right = (chosen == truth).astype(np.float64)
    return places, np.stack([is_right, confidence, np.ones(len(truth))], axis=1)


class TopLabelCombiner(KeyedCombiner):
    """Adds up the bins, example by example."""

    def create_accumulator(self) -> Bins:
        """Of no examples."""
        return np.zeros((BINS, 3))

    def add_input(self, accumulator: Bins, element: metric_types.StandardMetricInputs) -> Bins:
        """Adds an example."""
        for label, predicted, weight in self.rows(element, flatten=False):
            (place,), (added,) = top_labels(label.reshape(1), predicted.reshape(1, -1))
            accumulator[place] += added * float(weight.item())
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Bins]) -> Bins:
        """Their sum."""
        return np.sum([*accumulators], axis=0)
