"""Metrics of numbers and ranks that TFMA has not got: means of what each example comes to."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2


class MeanMetric(metric_types.Metric):
    """A weighted mean over the examples."""

    def __init__(self, name: str) -> None:
        super().__init__(metric_util.merge_per_key_computations(self._make_computations), name=name)

    @abstractmethod
    def of_rows(
        self, truth: np.ndarray, predicted: np.ndarray, quantiles: np.ndarray
    ) -> np.ndarray:
        """What each example comes to, [rows].

        Args:
          truth: the labels, [rows] float64.
          predicted: what the model says, [rows, 1], or of classes their probabilities.
          quantiles: [rows, levels], ascending; no levels where the model predicts none.
        """

    def _make_computations(
        self,
        name: str,
        eval_config: config_pb2.EvalConfig | None = None,
        model_name: str = "",
        output_name: str = "",
        example_weighted: bool = False,
    ) -> metric_types.MetricComputations:
        key = metric_types.MetricKey(
            name,
            model_name=model_name,
            output_name=output_name,
            example_weighted=example_weighted,
        )

        def add(element: metric_types.StandardMetricInputs) -> Iterable[tuple[float, float]]:
            quantiles = _quantiles(element, model_name)
            for label, predicted, weight in metric_util.to_label_prediction_example_weight(
                element,
                eval_config=eval_config,
                model_name=model_name,
                output_name=output_name,
                example_weighted=example_weighted,
                flatten=False,
            ):
                truth = np.array([float(label.item())])
                (value,) = self.of_rows(truth, predicted.reshape(1, -1), quantiles[np.newaxis])
                yield float(weight.item()), float(weight.item()) * value

        combiner = _MeanCombiner(key, add, self)
        return [metric_types.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)]


def _quantiles(element: metric_types.StandardMetricInputs, model_name: str) -> np.ndarray:
    """What the signature of evaluation gives beside its predictions; of models that have some."""
    output = element.prediction
    if model_name:
        output = output[model_name]
    if not isinstance(output, Mapping) or "quantiles" not in output:
        return np.zeros(0)
    return np.asarray(output["quantiles"], np.float64).ravel()


class _MeanCombiner(beam.CombineFn):
    """Weights and weighted values, added up."""

    def __init__(
        self,
        key: metric_types.MetricKey,
        read: Callable[[metric_types.StandardMetricInputs], Iterable[tuple[float, float]]],
        metric: MeanMetric,
    ) -> None:
        super().__init__()
        self._key = key
        self._read = read
        self.metric = metric

    def create_accumulator(self) -> tuple[float, float]:
        return 0.0, 0.0

    def add_input(
        self, accumulator: tuple[float, float], element: metric_types.StandardMetricInputs
    ) -> tuple[float, float]:
        return self.merge_accumulators([accumulator, *self._read(element)])

    def merge_accumulators(
        self, accumulators: Iterable[tuple[float, float]]
    ) -> tuple[float, float]:
        weights, totals = zip(*accumulators, strict=True)
        return math.fsum(weights), math.fsum(totals)

    def extract_output(
        self, accumulator: tuple[float, float]
    ) -> dict[metric_types.MetricKey, float]:
        weight, total = accumulator
        return {self._key: total / weight if weight else math.nan}


class Coverage(MeanMetric):
    """The share of the labels between the first and the last quantile."""

    def of_rows(
        self, truth: np.ndarray, predicted: np.ndarray, quantiles: np.ndarray
    ) -> np.ndarray:
        """NaN of a model without quantiles."""
        del predicted
        if not quantiles.shape[1]:
            return np.full(len(truth), np.nan)
        return ((quantiles[:, 0] <= truth) & (truth <= quantiles[:, -1])).astype(np.float64)


class IntervalWidth(MeanMetric):
    """How far the first and the last quantile are apart."""

    def of_rows(
        self, truth: np.ndarray, predicted: np.ndarray, quantiles: np.ndarray
    ) -> np.ndarray:
        """NaN of a model without quantiles."""
        del predicted
        if not quantiles.shape[1]:
            return np.full(len(truth), np.nan)
        return quantiles[:, -1] - quantiles[:, 0]


class PinballLoss(MeanMetric):
    """The mean over the quantiles of what makes each of them small when it is right."""

    def __init__(self, name: str, levels: Sequence[float]) -> None:
        super().__init__(name)
        self._levels = np.array(levels)

    def of_rows(
        self, truth: np.ndarray, predicted: np.ndarray, quantiles: np.ndarray
    ) -> np.ndarray:
        """NaN of a model with another number of quantiles."""
        del predicted
        if quantiles.shape[1] != len(self._levels):
            return np.full(len(truth), np.nan)
        error = truth[:, np.newaxis] - quantiles
        return np.maximum(self._levels * error, (self._levels - 1) * error).mean(1)


class SymmetricPercentageError(MeanMetric):
    """The error in percent of the mean of label and prediction: from 0 to 200."""

    def of_rows(
        self, truth: np.ndarray, predicted: np.ndarray, quantiles: np.ndarray
    ) -> np.ndarray:
        """0 where both are 0."""
        del quantiles
        said = predicted.astype(np.float64)[:, 0]
        size = np.abs(truth) + np.abs(said)
        return 200 * np.divide(np.abs(truth - said), size, out=np.zeros(len(size)), where=size != 0)


class PoissonDeviance(MeanMetric):
    """Twice what a count's likelihood lacks of that of a perfect prediction."""

    def of_rows(
        self, truth: np.ndarray, predicted: np.ndarray, quantiles: np.ndarray
    ) -> np.ndarray:
        """0 where it is right; infinite where it is, or where it is 0 and the count is not."""
        del quantiles
        mean = predicted.astype(np.float64)[:, 0]
        usual = (mean > 0) & ~np.isinf(mean)
        safe = np.where(usual, mean, 1.0)
        surprise = truth * np.log(np.where(truth > 0, truth, 1.0) / safe)
        surprise = np.where(truth == 0, 0.0, surprise)
        odd = np.where((truth == 0) & (mean == 0), 0.0, np.inf)
        return np.where(np.isnan(mean), np.nan, np.where(usual, 2 * (surprise - truth + mean), odd))


class RankError(MeanMetric):
    """By how many ranks the most probable of some classes in order is off."""

    def of_rows(
        self, truth: np.ndarray, predicted: np.ndarray, quantiles: np.ndarray
    ) -> np.ndarray:
        """0 where it is right."""
        del quantiles
        return np.abs(truth - predicted.argmax(1))
