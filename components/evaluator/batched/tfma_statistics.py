"""Statistics of TFMA's combiners: counts by threshold, bucket and class, and means of errors."""

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
        """Returns the sum, as TFMA's accumulator is a number."""
        return float(sums[0])


_ERRORS = {
    tfma.ABSOLUTE_ERROR: lambda truth, said: np.abs(truth - said),
    tfma.SQUARED_ERROR: lambda truth, said: np.abs(truth - said).astype(np.float64) ** 2,
    # For a label of 0 the error is NaN, and the row is left out.
    tfma.PERCENTAGE_ERROR: lambda truth, said: (
        100.0 * np.abs((truth - said) / np.where(truth == 0, np.nan, truth)).astype(np.float64)
    ),
}


@statistic_for(tfma.REGRESSION_ERRORS)
class RegressionError(MeanStatistic):
    """The mean of an error of numbers; rows whose error is NaN are left out, as in TFMA."""

    fields = ("total_regression_error", "total_example_weights")

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the error of each row."""
        errors = _ERRORS[tfma.class_name(type(self.combiner))](batch.labels, batch.numbers)
        known = ~np.isnan(errors)
        weights = np.where(known, self.weights(batch), 0.0)
        return weigh(np.where(known, errors, 0.0), weights)


@statistic_for(tfma.BINARY_CROSS_ENTROPY)
class BinaryCrossEntropy(MeanStatistic):
    """The mean cross-entropy of binary labels."""

    fields = ("total_cross_entropy", "total_example_weights")

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner takes probabilities, without label smoothing."""
        return super().supports(combiner) and not tfma.has_logits_or_smoothing(combiner)

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the cross-entropy of each row."""
        truth, said = batch.labels, batch.numbers
        entropy = -(truth * np.log(said)) - (1 - truth) * np.log(1 - said)
        return weigh(entropy, self.weights(batch))


@statistic_for(tfma.KERAS_METRICS)
class KerasMeans(MeanStatistic):
    """Keras metrics that are means of a value per row.

    TFMA computes other Keras metrics, whose state may be of any kind.
    """

    def __init__(self, combiner: Any) -> None:
        metrics = tfma.metrics_of(combiner)
        self._per_row = [found for metric in metrics if (found := _per_row(metric))]
        self._are_roots = [_is_root(metric) for metric in metrics]
        self.width = 2 * len(metrics)
        super().__init__(combiner)

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner has one output and its metrics are all means of a value per
        row.
        """
        if not tfma.has_one_output(combiner):
            return False
        return super().supports(combiner) and all(map(_per_row, tfma.metrics_of(combiner)))

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the value of each metric for each row, and the weight."""
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
        """Returns TFMA's accumulator, with the weights that Keras's metrics would have."""
        filled = self.combiner.create_accumulator()
        for index, (total, weight) in enumerate(sums.reshape(-1, 2)):
            filled.add_weights(0, index, [np.float32(total), np.float32(weight)])
        return filled

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the means, or their square roots."""
        found = zip(super().resampled(parts, counts), self._are_roots, strict=True)
        return [np.sqrt(values) if is_root else values for values, is_root in found]


def _per_row(metric: tf_keras.metrics.Metric) -> tfma.PerRow | None:
    """Returns a function from labels [rows, 1] and outputs [rows, n] to a value per row; None if
    the metric is not a mean.
    """
    return _squared_errors if _is_root(metric) else tfma.per_row(metric)


def _is_root(metric: tf_keras.metrics.Metric) -> bool:
    # A subclass may not square in `update_state` or take the root in `result`.
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
        """Returns the sums' terms for each row, in the order of the fields of TFMA's
        accumulator.
        """
        truth = batch.labels.astype(np.float64)
        said = batch.numbers.astype(np.float64)
        parts = [truth, said, truth**2, said**2, truth * said, np.ones(len(truth))]
        return np.stack(parts, axis=1) * self.weights(batch)[:, np.newaxis]

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the squared covariance divided by both variances."""
        truth, said, truth2, said2, both, weight = (counts @ self.totals[parts]).T
        covered = both - ratio(truth * said, weight)
        spreads = (truth2 - ratio(truth**2, weight)) * (said2 - ratio(said**2, weight))
        return [ratio(covered**2, spreads)]


@statistic_for(tfma.BINARY_MATRICES)
class BinaryMatrices(SumStatistic):
    """The counts of true and false positives and negatives, by threshold."""

    derived = ("BinaryAccuracy", "Precision", "Recall", "F1Score", "BalancedAccuracy")

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner keeps no samples of examples."""
        return super().supports(combiner) and not tfma.samples_examples(combiner)

    def __init__(self, combiner: Any) -> None:
        self.thresholds = tfma.matrix_thresholds(combiner)
        self.width = 4 * len(self.thresholds)
        super().__init__(combiner)

    @property
    def has_formulas(self) -> bool:
        """Whether the only threshold is the usual one, 0.5."""
        return list(self.thresholds) == [0.5]

    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the cells of each row in the order of TFMA's matrix, for each threshold."""
        weights, columns = self.weights(batch), []
        for threshold in self.thresholds:
            said = batch.numbers.astype(np.float64) > threshold
            true = _is_true(self.combiner, batch.labels, threshold)
            columns += [true & said, ~true & ~said, ~true & said, true & ~said]
        return np.stack(columns, axis=1) * weights[:, np.newaxis]

    def accumulator(self, sums: np.ndarray) -> dict[float, Any]:
        """Returns TFMA's matrices by threshold."""
        counts = sums.reshape(-1, 4).tolist()
        matrices: dict[float, Any] = tfma.matrix_accumulator(self.thresholds, counts)
        return matrices

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns accuracy, precision, recall, F1 and balanced accuracy, as TFMA and Keras define
        them.
        """
        found, left, false, missed = (counts @ self.totals[parts]).T
        recall, specificity = ratio(found, found + missed), ratio(left, left + false)
        return [
            ratio(found + left, found + left + false + missed),
            ratio(found, found + false),
            recall,
            ratio(2 * found, 2 * found + false + missed),
            (recall + specificity) / 2,
        ]


def _is_true(combiner: Any, labels: np.ndarray, threshold: float) -> np.ndarray:
    if not tfma.takes_shares(combiner):
        return labels > threshold
    _check_binary(labels)
    return labels == 1


def _check_binary(labels: np.ndarray) -> None:
    """Raises UnsupportedInBatches for labels other than 0 and 1, which TFMA divides or refuses."""
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
        """Returns whether the combiner buckets by prediction, for labels that are classes."""
        return super().supports(combiner) and tfma.is_by_prediction(combiner)

    @property
    def has_formulas(self) -> bool:
        """Whether there are at least as many buckets as the areas under curves have thresholds."""
        return self.cells >= THRESHOLDS

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bucket of each prediction, and the sums' terms; -1 for rows without
        weight.
        """
        _check_binary(batch.labels)
        scale, said = self.scale, batch.numbers.astype(np.float64)
        if np.isnan(said).any():
            raise UnsupportedInBatches("some predictions are NaN")
        buckets = (said - scale.left) / scale.width * scale.buckets + 1
        buckets = np.clip(buckets, 0, self.cells - 1).astype(np.int64)
        weights = self.weights(batch)
        values = np.stack([batch.labels, said, np.ones(len(said))], axis=1)
        return np.where(weights != 0, buckets, -1), values * weights[:, np.newaxis]

    def accumulator(self, cells: np.ndarray, sums: np.ndarray) -> dict[int, Any]:
        """Returns TFMA's buckets by number."""
        return {
            bucket: calibration_histogram.Bucket(bucket, *values)
            for bucket, values in zip(cells.tolist(), sums.tolist(), strict=True)
        }

    def with_matrices(
        self, parts: np.ndarray, wanted: list[Any]
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Returns the output, and the matrices at many thresholds that TFMA would derive, as
        arrays.

        TFMA derives them in Python, threshold by threshold, which takes a tenth of a second for
        each slice. TFMA still derives matrices at other kinds of thresholds, such as those of
        plots.

        Args:
          parts: the numbers of the parts to add up.
          wanted: the keys of all results that are derived from statistics.
        """
        buckets, sums = self.sum_cells(parts)
        output = self.combiner.extract_output(self.accumulator(buckets, sums))
        (own,) = output
        same = ("model_name", "output_name", "sub_key", "example_weighted")
        found = {}
        for key in wanted:
            match = _MATRICES.fullmatch(key.name)
            if match and all(getattr(key, part) == getattr(own, part) for part in same):
                found[key] = self._matrices(buckets, sums, int(match[1]))
        return output, found

    def _matrices(self, buckets: np.ndarray, sums: np.ndarray, count: int) -> Any:
        """Returns TFMA's matrices at thresholds from -epsilon to 1 + epsilon."""
        thresholds = tfma.interpolated_thresholds(count)
        scale = self.scale
        starts = (buckets - 1) / scale.buckets * scale.width + scale.left
        starts = np.where(buckets == 0, -np.inf, starts)
        starts = np.where(buckets == self.cells - 1, np.inf, starts)
        # A bucket includes its start, but a matrix counts predictions above its threshold.
        bounds = thresholds + tfma.epsilon()
        places = np.clip(np.searchsorted(bounds, starts, "right") - 1, 0, count - 1)
        positive = np.bincount(places, sums[:, 0], count)
        negative = np.bincount(places, sums[:, 2] - sums[:, 0], count)
        found, false = positive[::-1].cumsum()[::-1], negative[::-1].cumsum()[::-1]
        missed, left = positive.cumsum() - positive, negative.cumsum() - negative
        above = thresholds >= 1 + tfma.epsilon()
        return binary_confusion_matrices.Matrices(
            thresholds=thresholds.tolist(),
            tp=np.where(above, 0.0, found).tolist(),
            tn=np.where(above, false[0], left).tolist(),
            fp=np.where(above, 0.0, false).tolist(),
            fn=np.where(above, found[0], missed).tolist(),
        )

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the areas under curves, from the weights of both classes by the size of the
        prediction.
        """
        of, cells, totals = self.cells_of(parts)
        columns = merge_cells(cells, totals[:, 2])
        # The columns are in descending order of predictions.
        positive = table(counts, of, columns, totals[:, 0])[:, ::-1]
        negative = table(counts, of, columns, totals[:, 2] - totals[:, 0])[:, ::-1]
        found, false = positive.cumsum(1), negative.cumsum(1)
        positives, negatives = positive.sum(1), negative.sum(1)
        ranked = (negative * (found - positive / 2)).sum(1)
        steps = np.nan_to_num(ratio(found, found + false)) * positive
        # The interpolation of Davis and Goadrich (2006), as in Keras and TFMA.
        said, slope = found + false, np.nan_to_num(ratio(positive, positive + negative))
        before = said - positive - negative
        intercept = (found - positive) - slope * before
        growth = np.log(np.nan_to_num(ratio(said, before), nan=1.0))
        interpolated = slope * (positive + intercept * growth)
        return [
            ratio(ranked, positives * negatives),
            ratio(interpolated.sum(1), positives),
            ratio(steps.sum(1), positives),
        ]


@statistic_for(tfma.CLASS_MATRIX)
class ClassMatrix(CellStatistic):
    """The confusion matrix of the classes."""

    width = 1
    cells = 1 << 40
    """The pairs of classes: the true one times 2^20 plus the predicted one, each counted from
    -1."""
    derived = ("MacroPrecision", "MacroRecall", "MacroF1", "MulticlassBalancedAccuracy")

    def __init__(self, combiner: Any) -> None:
        self.thresholds = tfma.class_thresholds(combiner)
        super().__init__(combiner)

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner has one threshold, as TFMA's results for several depend on
        their order.
        """
        return super().supports(combiner) and len(tfma.class_thresholds(combiner)) == 1

    @property
    def has_formulas(self) -> bool:
        """Whether the predicted class is the most probable one, however probable."""
        return list(self.thresholds) == [0.0]

    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the pair of the true and the predicted class of each row, and its weight."""
        if batch.predictions.shape[1] == 1:
            raise UnsupportedInBatches("the confusion matrix of the classes has only one output")
        said = batch.predictions.argmax(1)
        score = np.take_along_axis(batch.predictions, said[:, np.newaxis], 1)[:, 0]
        none = multi_class_confusion_matrix_metrics.NO_PREDICTED_CLASS_ID
        said = np.where(score <= self.thresholds[0], none, said)
        pairs = (batch.labels.astype(np.int64) + 1 << 20) + said + 1
        return pairs, self.weights(batch)[:, np.newaxis]

    def accumulator(self, cells: np.ndarray, sums: np.ndarray) -> Any:
        """Returns TFMA's matrix, by its one threshold."""
        true, said = np.divmod(cells, 1 << 20)
        entry = multi_class_confusion_matrix_metrics.MatrixEntryKey
        keys = map(entry, (true - 1).tolist(), (said - 1).tolist())
        filled = self.combiner.create_accumulator()
        filled[self.thresholds[0]] = dict(zip(keys, sums[:, 0].tolist(), strict=True))
        return filled

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns means over the classes that occur in a resample, as `own_metrics.classes` defines
        them.
        """
        of, pairs, totals = self.cells_of(parts)
        true, said = np.divmod(pairs, 1 << 20)
        classes, where = np.unique(np.concatenate([true, said]), return_inverse=True)
        true, said = where[: len(pairs)], where[len(pairs) :]
        # A cell of weight 0 for the last class makes each table as wide as the number of classes.
        last, none = np.array([len(classes) - 1]), np.zeros(1)
        of = np.concatenate([of, np.zeros(1, np.int64)])
        tables = []
        for columns, kept in ((true, true == said), (true, true >= 0), (said, said >= 0)):
            values = np.concatenate([np.where(kept, totals[:, 0], 0.0), none])
            tables.append(table(counts, of, np.concatenate([columns, last]), values))
        found, there, predicted = tables
        return class_means(found, there, predicted, there + predicted > 0)


def class_means(
    correct: np.ndarray, there: np.ndarray, predicted: np.ndarray, occurs: np.ndarray
) -> list[Values]:
    """Returns the means over classes of precision, recall, F1, and of recall where there are
    examples.

    Args:
      correct: [..., classes], the weights of the correctly predicted examples of each class.
      there: [..., classes], the weights of the examples of each class.
      predicted: [..., classes], the weights of the examples that are predicted as each class.
      occurs: whether a class counts in the first three means, with 0 where a ratio is undefined.
    """
    recall, f1 = ratio(correct, there), ratio(2 * correct, there + predicted)
    return [
        _mean(np.nan_to_num(ratio(correct, predicted)), occurs),
        _mean(np.nan_to_num(recall), occurs),
        _mean(np.nan_to_num(f1), occurs),
        _mean(recall, there > 0),
    ]


def _mean(values: np.ndarray, counted: np.ndarray) -> Values:
    return ratio(np.where(counted, values, 0.0).sum(-1), counted.sum(-1).astype(np.float64))
