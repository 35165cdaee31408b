"""Metrics of classes: macro averages, the average precision, and the calibration error.

TFMA's own macro averages need the number of classes in the Evaluator's config, which is written
before the data is read.

Calibration compares a probability with the share of examples for which the prediction comes true.
With two classes the probability is that of the positive one; with several it is that of the most
probable one: Guo et al., 2017, "On Calibration of Modern Neural Networks", arXiv:1706.04599.
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
    """The precisions at all thresholds, each weighted by the recall that it adds."""

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns TFMA's matrices at these thresholds, and the average precision derived from
        them.
        """
        matrices = binary_confusion_matrices.binary_confusion_matrices(
            num_thresholds=THRESHOLDS, eval_config=eval_config, **key_options(key)
        )
        return add_derived(matrices, key, _average_precision)


def _average_precision(matrices: Any) -> float:
    found, false = np.array(matrices.tp), np.array(matrices.fp)
    if not found[0]:
        return math.nan
    precision = found / np.maximum(found + false, np.finfo(float).tiny)
    added = found - np.append(found[1:], 0)
    return float(np.sum(precision * added) / found[0])


class MacroMetric(OwnMetric):
    """The mean of a metric over the classes that occur; the prediction is the most probable
    class.
    """

    place: ClassVar[int]
    """The metric's place in the list that `class_means` returns."""

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns TFMA's matrix of pairs of classes, and the mean derived from it."""
        matrices = multi_class_confusion_matrix_metrics.multi_class_confusion_matrices(
            thresholds=[0.0], eval_config=eval_config, **key_options(key)
        )
        return add_derived(matrices, key, self._mean)

    def _mean(self, matrices: Mapping[float, Mapping[Any, float]]) -> float:
        (matrix,) = matrices.values()
        pairs = np.array([(e.actual_class_id, e.predicted_class_id) for e in matrix], np.int64)
        weights = np.array([*matrix.values()], np.float64)
        classes, where = np.unique(pairs, return_inverse=True)
        true, said = where.reshape(-1, 2).T
        there, predicted, found = (
            np.bincount(of, values, len(classes))
            for of, values in ((true, weights), (said, weights), (true, weights * (true == said)))
        )
        occurs = np.ones(len(classes), bool)
        return float(class_means(found, there, predicted, occurs)[self.place])


class MacroPrecision(MacroMetric):
    """The mean precision of the classes; 0 for a class that is never predicted."""

    place = 0


class MacroRecall(MacroMetric):
    """The mean recall of the classes; 0 for a class without examples."""

    place = 1


class MacroF1(MacroMetric):
    """The mean of the classes' harmonic means of precision and recall."""

    place = 2


class MulticlassBalancedAccuracy(MacroMetric):
    """The mean recall of the classes that have examples, and not only predictions."""

    place = 3


BINS = 10
"""The number of bins of equal width, from 0 to 1."""

Bins = np.ndarray
"""The weighted sums of outcomes, of probabilities, and of ones in each bin: [BINS, 3] float64."""


def expected_calibration_error(bins: Bins) -> float:
    """Returns the mean distance between probabilities and outcomes, over the bins by weight.

    Args:
      bins: the bins of the predictions.

    Returns:
      The error; NaN if there are no predictions or one is NaN.
    """
    true, said, weights = bins.sum(axis=0).tolist()
    if not weights or math.isnan(true + said):
        return math.nan
    return float(np.abs(bins[:, 0] - bins[:, 1]).sum() / weights)


class CalibrationError(OwnMetric):
    """The mean distance between the probability of the positive class and its share, by bins."""

    def computations_for(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the histogram of TFMA's areas under curves, which they share, and the error
        derived from it.
        """
        histogram = calibration_histogram.calibration_histogram(
            eval_config=eval_config, **key_options(key)
        )
        return add_derived(histogram, key, _of_histogram)


def _of_histogram(histogram: Any) -> float:
    bins, buckets = np.zeros((BINS, 3)), calibration_histogram.DEFAULT_NUM_BUCKETS
    for one in histogram:
        # The first bucket holds predictions below 0, the last one those of 1 and above.
        place = min(max((one.bucket_id - 1) * BINS // buckets, 0), BINS - 1)
        bins[place] += one.weighted_labels, one.weighted_predictions, one.weighted_examples
    return expected_calibration_error(bins)


class TopLabelBins(CellStatistic):
    """The sums of right predictions, confidences and examples, by the bin of the confidence."""

    width = 3
    cells = BINS

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bin of each row's highest probability, and the sums' terms."""
        if batch.predictions.shape[1] == 1:
            raise UnsupportedInBatches("the most probable class has only one output")
        chosen = batch.predictions.argmax(1)
        confidence = np.take_along_axis(batch.predictions, chosen[:, np.newaxis], 1)[:, 0]
        confidence = confidence.astype(np.float64)
        # NaN stays NaN in the sums, and is in the first bin.
        places = np.clip(np.nan_to_num(confidence) * BINS, 0, BINS - 1).astype(np.int64)
        is_right = (chosen == batch.labels).astype(np.float64)
        values = np.stack([is_right, confidence, np.ones(len(chosen))], axis=1)
        return places, values * self.weights(batch)[:, np.newaxis]

    def output(self, parts: np.ndarray) -> dict[Any, Bins]:
        """Returns all bins, including empty ones."""
        bins = np.zeros((BINS, 3))
        places, sums = self.sum_cells(parts)
        bins[places] = sums
        return {self.combiner.key: bins}


class TopLabelCalibrationError(OwnMetric):
    """The mean distance between the highest probability and the accuracy, by bins."""

    def computations_for(
        self, key: AnyKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the bins of confidences, and the error derived from them."""
        return _of_top_labels(key, eval_config, expected_calibration_error)


class TopLabelCalibrationPlot(OwnMetric):
    """The bins of the calibration error, in the form of TFMA's plots for two classes."""

    key_type = metric_types.PlotKey

    def __init__(self, name: str = calibration_plot.CALIBRATION_PLOT_NAME) -> None:
        super().__init__(name)

    def computations_for(
        self, key: AnyKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """Returns the bins, and TFMA's buckets derived from them."""
        return _of_top_labels(key, eval_config, _buckets)


def _of_top_labels(
    key: AnyKey, eval_config: config_pb2.EvalConfig | None, of_bins: Callable[[Bins], Any]
) -> Computations:
    bins = metric_types.MetricKey(f"_top_label_bins:{BINS}", **key_options(key))
    return add_derived(statistic_computations(bins, eval_config, TopLabelBins), key, of_bins)


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
