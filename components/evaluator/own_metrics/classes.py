"""Metrics of classes: macro averages, the average precision, and the calibration error.

TFMA's own macro averages need the number of classes in the Evaluator's config, which is written
before the data is read.

The calibration error compares a predicted probability with the share of correct predictions.
If there are two classes, it is the probability of the positive class. If there are more, it is the
probability of the most probable class (Guo et al., 2017, "On Calibration of Modern Neural
Networks", arXiv:1706.04599).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    calibration_histogram,
    calibration_plot,
    metric_types,
    multi_class_confusion_matrix_metrics,
)
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2

from components.evaluator.batched.slices import ModelRows, UnsupportedInBatches
from components.evaluator.batched.statistics import THRESHOLDS, CellStatistic
from components.evaluator.batched.tfma_statistics import class_means
from components.evaluator.own_metrics import (
    AnyKey,
    Computations,
    OwnMetric,
    add_derived,
    key_options,
    statistic_computations,
)


class AveragePrecision(OwnMetric):
    """The mean of the precisions at all thresholds, weighted by the increases of the recall."""

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computations of TFMA's matrices and of the average precision."""
        matrices = binary_confusion_matrices.binary_confusion_matrices(
            num_thresholds=THRESHOLDS, eval_config=eval_config, **key_options(key)
        )
        return add_derived(matrices, key, _average_precision)


def _average_precision(matrices: Any) -> float:
    tp, fp = np.array(matrices.tp), np.array(matrices.fp)
    if not tp[0]:
        return math.nan
    precision = tp / np.maximum(tp + fp, np.finfo(float).tiny)
    added = tp - np.append(tp[1:], 0)
    return float(np.sum(precision * added) / tp[0])


class MacroMetric(OwnMetric):
    """The mean of a metric over the classes that occur as labels or as predictions.

    The predicted class is the most probable class.
    """

    index: ClassVar[int]
    """The index of the metric in the list that `class_means` returns."""

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computations of TFMA's matrix of pairs of classes, and of the mean."""
        matrices = multi_class_confusion_matrix_metrics.multi_class_confusion_matrices(
            thresholds=[0.0], eval_config=eval_config, **key_options(key)
        )
        return add_derived(matrices, key, self._mean)

    def _mean(self, matrices: Mapping[float, Mapping[Any, float]]) -> float:
        (matrix,) = matrices.values()
        pairs = np.array(
            [(entry.actual_class_id, entry.predicted_class_id) for entry in matrix], np.int64
        )
        weights = np.array([*matrix.values()], np.float64)
        classes, inverse = np.unique(pairs, return_inverse=True)
        actual, predicted = inverse.reshape(-1, 2).T
        actual_sums, predicted_sums, correct_sums = (
            np.bincount(columns, values, len(classes))
            for columns, values in (
                (actual, weights),
                (predicted, weights),
                (actual, weights * (actual == predicted)),
            )
        )
        occurs = np.ones(len(classes), bool)
        return float(class_means(correct_sums, actual_sums, predicted_sums, occurs)[self.index])


class MacroPrecision(MacroMetric):
    """The mean precision of the classes, or 0 for a class that is never predicted."""

    index = 0


class MacroRecall(MacroMetric):
    """The mean recall of the classes, or 0 for a class without examples."""

    index = 1


class MacroF1(MacroMetric):
    """The mean of the classes' harmonic means of precision and recall."""

    index = 2


class MulticlassBalancedAccuracy(MacroMetric):
    """The mean recall of the classes that have examples."""

    index = 3


BINS = 10
"""The number of bins, which have equal widths and cover the probabilities from 0 to 1."""

Bins = np.ndarray
"""Three sums over the rows of each bin, [BINS, 3] float64: the weights of rows with a positive
outcome, the weighted probabilities, and all weights."""


def expected_calibration_error(bins: Bins) -> float:
    """Returns the weighted mean over bins of the distance between mean probability and mean
    outcome.

    Returns:
      The error, or NaN if there are no predictions or a prediction is NaN.
    """
    actual, predicted, weights = bins.sum(axis=0).tolist()
    if not weights or math.isnan(actual + predicted):
        return math.nan
    return float(np.abs(bins[:, 0] - bins[:, 1]).sum() / weights)


class CalibrationError(OwnMetric):
    """The mean distance between the probability and the share of the positive class, by bins."""

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computations of TFMA's histogram and of the error.

        TFMA's areas under curves use the same histogram.
        """
        histogram = calibration_histogram.calibration_histogram(
            eval_config=eval_config, **key_options(key)
        )
        return add_derived(histogram, key, _histogram_error)


def _histogram_error(histogram: Any) -> float:
    bins, bucket_count = np.zeros((BINS, 3)), calibration_histogram.DEFAULT_NUM_BUCKETS
    for bucket in histogram:
        # The first bucket has the predictions below 0, and the last bucket those of 1 and above.
        index = min(max((bucket.bucket_id - 1) * BINS // bucket_count, 0), BINS - 1)
        bins[index] += bucket.weighted_labels, bucket.weighted_predictions, bucket.weighted_examples
    return expected_calibration_error(bins)


class TopLabelBins(CellStatistic):
    """The sums of correct predictions, confidences and examples, by the bin of the confidence.

    The confidence is the probability of the most probable class.
    """

    width = 3
    cells = BINS

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bin of each row's confidence, and the terms of the sums."""
        if batch.predictions.shape[1] == 1:
            raise UnsupportedInBatches("the most probable class has only one output")
        predicted = batch.predictions.argmax(1)
        confidence = np.take_along_axis(batch.predictions, predicted[:, np.newaxis], 1)[:, 0]
        confidence = confidence.astype(np.float64)
        # A NaN is added to the sums of the first bin.
        indices = np.clip(np.nan_to_num(confidence) * BINS, 0, BINS - 1).astype(np.int64)
        is_right = (predicted == batch.labels).astype(np.float64)
        values = np.stack([is_right, confidence, np.ones(len(predicted))], axis=1)
        return indices, values * self.weights(batch)[:, np.newaxis]

    def output(self, parts: np.ndarray) -> dict[Any, Bins]:
        """Returns all bins, including empty bins."""
        bins = np.zeros((BINS, 3))
        indices, sums = self.sum_cells(parts)
        bins[indices] = sums
        return {self.combiner.key: bins}


class TopLabelCalibrationError(OwnMetric):
    """The mean distance between confidence and accuracy, by bins of the confidence."""

    def computations_for(
        self, key: AnyKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computations of the bins and of the error."""
        return _derive_from_bins(key, eval_config, expected_calibration_error)


class TopLabelCalibrationPlot(OwnMetric):
    """The bins of the calibration error, in the format of TFMA's calibration plot."""

    key_type = metric_types.PlotKey

    def __init__(self, name: str = calibration_plot.CALIBRATION_PLOT_NAME) -> None:
        super().__init__(name)

    def computations_for(
        self, key: AnyKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the computations of the bins and of TFMA's buckets."""
        return _derive_from_bins(key, eval_config, _buckets)


def _derive_from_bins(
    key: AnyKey, eval_config: config_pb2.EvalConfig | None, derive: Callable[[Bins], Any]
) -> Computations:
    bins = metric_types.MetricKey(f"_top_label_bins:{BINS}", **key_options(key))
    return add_derived(statistic_computations(bins, eval_config, TopLabelBins), key, derive)


def _buckets(bins: Bins) -> metrics_for_slice_pb2.CalibrationHistogramBuckets:
    buckets = metrics_for_slice_pb2.CalibrationHistogramBuckets()
    for index, (actual, predicted, weight) in enumerate(bins.tolist()):
        buckets.buckets.add(
            lower_threshold_inclusive=index / BINS,
            upper_threshold_exclusive=(index + 1) / BINS if index + 1 < BINS else math.inf,
            total_weighted_label={"value": actual},
            total_weighted_refined_prediction={"value": predicted},
            num_weighted_examples={"value": weight},
        )
    return buckets
