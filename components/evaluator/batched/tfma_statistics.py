"""The statistics of TFMA's combiners: counts by threshold, bucket and class, and mean errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tf_keras
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    calibration_histogram,
    multi_class_confusion_matrix_metrics,
)

from components.compat import tfma
from components.evaluator.batched.slices import ModelRows, UnsupportedInBatches
from components.evaluator.batched.statistics import (
    THRESHOLDS,
    CellStatistic,
    MeanStatistic,
    SumStatistic,
    Values,
    merge_cells,
    ratio,
    statistic_for,
    table,
    weigh,
)


@statistic_for(tfma.EXAMPLE_COUNT)
class ExampleCount(SumStatistic):
    """The number of examples, or the sum of their weights."""

    width = 1

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the weight of each row."""
        return self.weights(batch)[:, np.newaxis]

    def accumulator(self, sums: np.ndarray) -> float:
        """Returns the sum: TFMA's accumulator is a number."""
        return float(sums[0])


_ERRORS = {
    tfma.ABSOLUTE_ERROR: lambda label, predicted: np.abs(label - predicted),
    tfma.SQUARED_ERROR: lambda label, predicted: np.abs(label - predicted).astype(np.float64) ** 2,
    # If the label is 0, the error is NaN, and the mean leaves the row out.
    tfma.PERCENTAGE_ERROR: lambda label, predicted: (
        100.0 * np.abs((label - predicted) / np.where(label == 0, np.nan, label)).astype(np.float64)
    ),
}


@statistic_for(tfma.REGRESSION_ERRORS)
class RegressionError(MeanStatistic):
    """The mean of a regression error. Like TFMA, it leaves out the rows whose error is NaN."""

    fields = ("total_regression_error", "total_example_weights")

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the weighted error and the weight of each row."""
        errors = _ERRORS[tfma.class_name(type(self.combiner))](batch.labels, batch.numbers)
        is_defined = ~np.isnan(errors)
        weights = np.where(is_defined, self.weights(batch), 0.0)
        return weigh(np.where(is_defined, errors, 0.0), weights)


@statistic_for(tfma.BINARY_CROSS_ENTROPY)
class BinaryCrossEntropy(MeanStatistic):
    """The mean cross-entropy of binary labels."""

    fields = ("total_cross_entropy", "total_example_weights")

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner takes probabilities, without label smoothing."""
        return super().supports(combiner) and not tfma.has_logits_or_smoothing(combiner)

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the weighted cross-entropy and the weight of each row."""
        labels, predicted = batch.labels, batch.numbers
        entropy = -(labels * np.log(predicted)) - (1 - labels) * np.log(1 - predicted)
        return weigh(entropy, self.weights(batch))


@statistic_for(tfma.KERAS_METRICS)
class KerasMeans(MeanStatistic):
    """Keras metrics that are means of a value per row.

    Other Keras metrics have a state of any kind: TFMA computes them.
    """

    def __init__(self, combiner: Any) -> None:
        metrics = tfma.metrics_of(combiner)
        self._per_row = [function for metric in metrics if (function := _per_row(metric))]
        self._are_roots = [_is_root(metric) for metric in metrics]
        self.width = 2 * len(metrics)
        super().__init__(combiner)

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether there is one output, and all metrics are means of a value per row."""
        if not tfma.has_one_output(combiner):
            return False
        return super().supports(combiner) and all(map(_per_row, tfma.metrics_of(combiner)))

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns two columns for each metric: the weighted values of the rows, and the weights."""
        weights, labels = self.weights(batch), batch.labels[:, np.newaxis]
        columns = []
        for per_row in self._per_row:
            values = per_row(labels, batch.predictions)
            if values.size != len(labels):
                raise UnsupportedInBatches("a Keras metric is not a mean over the rows")
            # Keras drops the axis for a single row.
            columns.append(weigh(values.reshape(-1), weights))
        return np.concatenate(columns, axis=1)

    def accumulator(self, sums: np.ndarray) -> Any:
        """Returns TFMA's accumulator, filled with the states of the Keras metrics."""
        filled = self.combiner.create_accumulator()
        for index, (total, weight) in enumerate(sums.reshape(-1, 2)):
            filled.add_weights(0, index, [np.float32(total), np.float32(weight)])
        return filled

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the mean of each metric, or its square root for a root mean squared error."""
        means = zip(super().resampled(parts, counts), self._are_roots, strict=True)
        return [np.sqrt(values) if is_root else values for values, is_root in means]


def _per_row(metric: tf_keras.metrics.Metric) -> tfma.PerRow | None:
    """Returns the function that computes a metric's values, or None if the metric is not a mean.

    Its arguments are labels [rows, 1] and outputs [rows, n]. It returns a value per row.
    """
    return _squared_errors if _is_root(metric) else tfma.per_row(metric)


def _is_root(metric: tf_keras.metrics.Metric) -> bool:
    # The type is compared, because a subclass may override `update_state` or `result`.
    return type(metric) is tf_keras.metrics.RootMeanSquaredError


def _squared_errors(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    if predictions.shape[1] != 1:
        raise UnsupportedInBatches("the squared error has several outputs")
    return np.square(labels - predictions)[:, 0]


@statistic_for(tfma.SQUARED_CORRELATION)
class SquaredCorrelation(SumStatistic):
    """The sums of labels, of predictions, of their squares and of their products."""

    width = 6
    is_metric = True
    fields = (
        "total_weighted_labels",
        "total_weighted_predictions",
        "total_weighted_squared_labels",
        "total_weighted_squared_predictions",
        "total_weighted_labels_times_predictions",
        "total_weighted_examples",
    )

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the terms of each row, in the order of the fields of TFMA's accumulator."""
        labels = batch.labels.astype(np.float64)
        predicted = batch.numbers.astype(np.float64)
        terms = [
            labels,
            predicted,
            labels**2,
            predicted**2,
            labels * predicted,
            np.ones(len(labels)),
        ]
        return np.stack(terms, axis=1) * self.weights(batch)[:, np.newaxis]

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the squared covariance, divided by the product of the variances."""
        labels, predicted, labels2, predicted2, products, weight = (counts @ self.totals[parts]).T
        covariance = products - ratio(labels * predicted, weight)
        spreads = (labels2 - ratio(labels**2, weight)) * (predicted2 - ratio(predicted**2, weight))
        return [ratio(covariance**2, spreads)]


@statistic_for(tfma.BINARY_MATRICES)
class BinaryMatrices(SumStatistic):
    """The counts of true and false positives and negatives, by threshold."""

    derived = ("BinaryAccuracy", "Precision", "Recall", "F1Score", "BalancedAccuracy")

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner does not sample examples."""
        return super().supports(combiner) and not tfma.samples_examples(combiner)

    def __init__(self, combiner: Any) -> None:
        self.thresholds = tfma.matrix_thresholds(combiner)
        self.width = 4 * len(self.thresholds)
        super().__init__(combiner)

    @property
    def has_formulas(self) -> bool:
        """Whether the only threshold is 0.5."""
        return list(self.thresholds) == [0.5]

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns, for each threshold, whether each row is a tp, tn, fp or fn, times its weight."""
        weights, columns = self.weights(batch), []
        for threshold in self.thresholds:
            is_predicted = batch.numbers.astype(np.float64) > threshold
            is_true = _is_true(self.combiner, batch.labels, threshold)
            columns += [
                is_true & is_predicted,
                ~is_true & ~is_predicted,
                ~is_true & is_predicted,
                is_true & ~is_predicted,
            ]
        return np.stack(columns, axis=1) * weights[:, np.newaxis]

    def accumulator(self, sums: np.ndarray) -> dict[float, Any]:
        """Returns TFMA's matrices by threshold."""
        counts = sums.reshape(-1, 4).tolist()
        matrices: dict[float, Any] = tfma.matrix_accumulator(self.thresholds, counts)
        return matrices

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns accuracy, precision, recall, F1 and balanced accuracy by TFMA's definitions."""
        tp, tn, fp, fn = (counts @ self.totals[parts]).T
        recall, specificity = ratio(tp, tp + fn), ratio(tn, tn + fp)
        return [
            ratio(tp + tn, tp + tn + fp + fn),
            ratio(tp, tp + fp),
            recall,
            ratio(2 * tp, 2 * tp + fp + fn),
            (recall + specificity) / 2,
        ]


def _is_true(combiner: Any, labels: np.ndarray, threshold: float) -> np.ndarray:
    if not tfma.takes_shares(combiner):
        return labels > threshold
    _check_binary(labels)
    return labels == 1


def _check_binary(labels: np.ndarray) -> None:
    """Raises UnsupportedInBatches if labels are not 0 or 1; TFMA splits or rejects such labels."""
    if not np.isin(labels, (0, 1)).all():
        raise UnsupportedInBatches("the labels are not only 0 and 1")


_MATRICES = re.compile(
    rf"{binary_confusion_matrices.BINARY_CONFUSION_MATRICES_NAME}:num_thresholds=(\d+)"
)


@statistic_for(tfma.HISTOGRAM)
class Histogram(CellStatistic):
    """The sums of labels, predictions and examples, by the bucket of the prediction."""

    width = 3
    derived = ("AUC", "AUCPrecisionRecall", "AveragePrecision")

    def __init__(self, combiner: Any) -> None:
        self.scale = tfma.Scale.of(combiner)
        self.cells = self.scale.buckets + 2
        super().__init__(combiner)

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner uses buckets of predictions."""
        return super().supports(combiner) and tfma.is_by_prediction(combiner)

    @property
    def has_formulas(self) -> bool:
        """Whether there are at least as many buckets as the areas under curves have thresholds."""
        return self.cells >= THRESHOLDS

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bucket of each prediction, and the terms of the sums.

        The bucket of a row of weight 0 is -1.
        """
        _check_binary(batch.labels)
        scale, predicted = self.scale, batch.numbers.astype(np.float64)
        if np.isnan(predicted).any():
            raise UnsupportedInBatches("some predictions are NaN")
        buckets = (predicted - scale.left) / scale.width * scale.buckets + 1
        buckets = np.clip(buckets, 0, self.cells - 1).astype(np.int64)
        weights = self.weights(batch)
        values = np.stack([batch.labels, predicted, np.ones(len(predicted))], axis=1)
        return np.where(weights != 0, buckets, -1), values * weights[:, np.newaxis]

    def accumulator(self, cells: np.ndarray, sums: np.ndarray) -> dict[int, Any]:
        """Returns TFMA's buckets by their numbers."""
        return {
            bucket: calibration_histogram.Bucket(bucket, *values)
            for bucket, values in zip(cells.tolist(), sums.tolist(), strict=True)
        }

    def with_matrices(
        self, parts: np.ndarray, keys: list[Any]
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Returns the combiner's output, and TFMA's matrices at interpolated thresholds.

        TFMA derives these matrices in a Python loop, which takes 0.1 seconds per slice; here NumPy
        derives them. TFMA still derives matrices at other thresholds, such as the thresholds of
        plots.
        """
        buckets, sums = self.sum_cells(parts)
        output = self.combiner.extract_output(self.accumulator(buckets, sums))
        (own_key,) = output
        attributes = ("model_name", "output_name", "sub_key", "example_weighted")
        matrices = {}
        for key in keys:
            match = _MATRICES.fullmatch(key.name)
            if match and all(
                getattr(key, attribute) == getattr(own_key, attribute) for attribute in attributes
            ):
                matrices[key] = self._matrices(buckets, sums, int(match[1]))
        return output, matrices

    def _matrices(self, buckets: np.ndarray, sums: np.ndarray, count: int) -> Any:
        """Returns TFMA's matrices at thresholds from -epsilon to 1 + epsilon."""
        thresholds = tfma.interpolated_thresholds(count)
        scale = self.scale
        starts = (buckets - 1) / scale.buckets * scale.width + scale.left
        starts = np.where(buckets == 0, -np.inf, starts)
        starts = np.where(buckets == self.cells - 1, np.inf, starts)
        # A bucket includes its start, but a matrix counts only predictions above its threshold.
        bounds = thresholds + tfma.epsilon()
        indices = np.clip(np.searchsorted(bounds, starts, "right") - 1, 0, count - 1)
        positive = np.bincount(indices, sums[:, 0], count)
        negative = np.bincount(indices, sums[:, 2] - sums[:, 0], count)
        tp, fp = positive[::-1].cumsum()[::-1], negative[::-1].cumsum()[::-1]
        fn, tn = positive.cumsum() - positive, negative.cumsum() - negative
        above = thresholds >= 1 + tfma.epsilon()
        return binary_confusion_matrices.Matrices(
            thresholds=thresholds.tolist(),
            tp=np.where(above, 0.0, tp).tolist(),
            tn=np.where(above, fp[0], tn).tolist(),
            fp=np.where(above, 0.0, fp).tolist(),
            fn=np.where(above, tp[0], fn).tolist(),
        )

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the ROC AUC, the area under the precision-recall curve, and the average
        precision.
        """
        owners, cells, totals = self.used_cells(parts)
        columns = merge_cells(cells, totals[:, 2])
        # The columns are reversed: the highest predictions come first.
        positive = table(counts, owners, columns, totals[:, 0])[:, ::-1]
        negative = table(counts, owners, columns, totals[:, 2] - totals[:, 0])[:, ::-1]
        tp, fp = positive.cumsum(1), negative.cumsum(1)
        positives, negatives = positive.sum(1), negative.sum(1)
        ranked = (negative * (tp - positive / 2)).sum(1)
        added_precision = np.nan_to_num(ratio(tp, tp + fp)) * positive
        # This is the interpolation of Davis and Goadrich (2006), as in Keras and TFMA.
        predicted, slope = tp + fp, np.nan_to_num(ratio(positive, positive + negative))
        before = predicted - positive - negative
        intercept = (tp - positive) - slope * before
        growth = np.log(np.nan_to_num(ratio(predicted, before), nan=1.0))
        interpolated = slope * (positive + intercept * growth)
        return [
            ratio(ranked, positives * negatives),
            ratio(interpolated.sum(1), positives),
            ratio(added_precision.sum(1), positives),
        ]


@statistic_for(tfma.CLASS_MATRIX)
class ClassMatrix(CellStatistic):
    """The confusion matrix of the classes."""

    width = 1
    cells = 1 << 40
    """The upper bound of a cell. A cell is a pair of classes: (true class + 1) * 2^20, plus the
    predicted class + 1. The class -1 stands for no prediction."""
    derived = ("MacroPrecision", "MacroRecall", "MacroF1", "MulticlassBalancedAccuracy")

    def __init__(self, combiner: Any) -> None:
        self.thresholds = tfma.class_thresholds(combiner)
        super().__init__(combiner)

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner has one threshold.

        TFMA's results for several thresholds depend on their order.
        """
        return super().supports(combiner) and len(tfma.class_thresholds(combiner)) == 1

    @property
    def has_formulas(self) -> bool:
        """Whether the only threshold is 0: the most probable class is always the predicted
        class.
        """
        return list(self.thresholds) == [0.0]

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cell of the true and the predicted class of each row, and the weights."""
        if batch.predictions.shape[1] == 1:
            raise UnsupportedInBatches("the confusion matrix of the classes has only one output")
        predicted = batch.predictions.argmax(1)
        score = np.take_along_axis(batch.predictions, predicted[:, np.newaxis], 1)[:, 0]
        none = multi_class_confusion_matrix_metrics.NO_PREDICTED_CLASS_ID
        predicted = np.where(score <= self.thresholds[0], none, predicted)
        pairs = (batch.labels.astype(np.int64) + 1 << 20) + predicted + 1
        return pairs, self.weights(batch)[:, np.newaxis]

    def accumulator(self, cells: np.ndarray, sums: np.ndarray) -> Any:
        """Returns TFMA's matrix, by its only threshold."""
        true, predicted = np.divmod(cells, 1 << 20)
        entry = multi_class_confusion_matrix_metrics.MatrixEntryKey
        keys = map(entry, (true - 1).tolist(), (predicted - 1).tolist())
        filled = self.combiner.create_accumulator()
        filled[self.thresholds[0]] = dict(zip(keys, sums[:, 0].tolist(), strict=True))
        return filled

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the means over the classes that occur in each resample; see `class_means`."""
        owners, pairs, totals = self.used_cells(parts)
        actual, predicted = np.divmod(pairs, 1 << 20)
        classes, inverse = np.unique(np.concatenate([actual, predicted]), return_inverse=True)
        actual, predicted = inverse[: len(pairs)], inverse[len(pairs) :]
        # With a cell of weight 0 for the last class, each table has a column for every class.
        last, zero = np.array([len(classes) - 1]), np.zeros(1)
        owners = np.concatenate([owners, np.zeros(1, np.int64)])
        tables = []
        for columns, is_counted in (
            (actual, actual == predicted),
            (actual, actual >= 0),
            (predicted, predicted >= 0),
        ):
            values = np.concatenate([np.where(is_counted, totals[:, 0], 0.0), zero])
            tables.append(table(counts, owners, np.concatenate([columns, last]), values))
        correct_sums, actual_sums, predicted_sums = tables
        return class_means(
            correct_sums, actual_sums, predicted_sums, actual_sums + predicted_sums > 0
        )


def class_means(
    correct: np.ndarray, actual: np.ndarray, predicted: np.ndarray, occurs: np.ndarray
) -> list[Values]:
    """Returns four means over classes: of precision, recall, F1, and recall of classes with
    examples.

    Args:
      correct: [..., classes], the weights of the correctly predicted examples of each class.
      there: [..., classes], the weights of the examples of each class.
      predicted: [..., classes], the weights of the examples that are predicted as each class.
      occurs: whether a class counts in the first three means; an undefined ratio counts as 0.
    """
    recall, f1 = ratio(correct, actual), ratio(2 * correct, actual + predicted)
    return [
        _mean(np.nan_to_num(ratio(correct, predicted)), occurs),
        _mean(np.nan_to_num(recall), occurs),
        _mean(np.nan_to_num(f1), occurs),
        _mean(recall, actual > 0),
    ]


def _mean(values: np.ndarray, is_counted: np.ndarray) -> Values:
    return ratio(np.where(is_counted, values, 0.0).sum(-1), is_counted.sum(-1).astype(np.float64))
