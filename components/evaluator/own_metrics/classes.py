"""Metrics that TFMA has not got, or not in this sense: the same as scikit-learn's of their names.

TFMA finds them by module and class name, and makes them of their name alone. Its own macro averages
need the number of classes in the Evaluator's config, which is written before the data is read.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    metric_types,
    metric_util,
    multi_class_confusion_matrix_metrics,
)
from tensorflow_model_analysis.proto import config_pb2

THRESHOLDS = 10_000
"""As many as TFMA's areas under curves have."""


class AveragePrecision(metric_types.Metric):
    """The precisions at all thresholds, each weighted by the recall that it adds."""

    def __init__(self, name: str = "average_precision", num_thresholds: int = THRESHOLDS) -> None:
        computations = metric_util.merge_per_key_computations(_average_precision)
        super().__init__(computations, name=name, num_thresholds=num_thresholds)


def _average_precision(
    name: str,
    num_thresholds: int,
    eval_config: config_pb2.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    parts: dict[str, Any] = {
        "model_name": model_name,
        "output_name": output_name,
        "example_weighted": example_weighted,
    }
    computations = binary_confusion_matrices.binary_confusion_matrices(
        num_thresholds=num_thresholds, eval_config=eval_config, **parts
    )
    matrices, key = computations[-1].keys[-1], metric_types.MetricKey(name, **parts)

    def result(metrics: Mapping[metric_types.MetricKey, Any]) -> dict[Any, float]:
        found, false = np.array(metrics[matrices].tp), np.array(metrics[matrices].fp)
        if not found[0]:
            return {key: math.nan}
        precision = found / np.maximum(found + false, np.finfo(float).tiny)
        added = found - np.append(found[1:], 0)
        return {key: float(np.sum(precision * added) / found[0])}

    derived = metric_types.DerivedMetricComputation(keys=[key], result=result)
    return [*computations, derived]


class ClassCounts(NamedTuple):
    """Of one class: the weights of those found, wrongly said to be of it, and missed."""

    found: float
    false: float
    missed: float


class MacroMetric(metric_types.Metric):
    """The mean over the classes that occur, of a class by the most probable one."""

    def __init__(self, name: str) -> None:
        super().__init__(metric_util.merge_per_key_computations(self._make_computations), name=name)

    @abstractmethod
    def of_class(self, counts: ClassCounts) -> float:
        """The metric of one class; NaN leaves it out."""

    def _make_computations(
        self,
        name: str,
        eval_config: config_pb2.EvalConfig | None = None,
        model_name: str = "",
        output_name: str = "",
        example_weighted: bool = False,
    ) -> metric_types.MetricComputations:
        computations = multi_class_confusion_matrix_metrics.multi_class_confusion_matrices(
            thresholds=[0.0],
            eval_config=eval_config,
            model_name=model_name,
            output_name=output_name,
            example_weighted=example_weighted,
        )
        (matrices,) = computations[-1].keys
        key = metric_types.MetricKey(
            name,
            model_name=model_name,
            output_name=output_name,
            example_weighted=example_weighted,
        )

        def result(metrics: Mapping[metric_types.MetricKey, Any]) -> dict[Any, float]:
            (matrix,) = metrics[matrices].values()
            values = [self.of_class(counts) for counts in _count_classes(matrix)]
            return {key: float(np.nanmean(values))}

        derived = metric_types.DerivedMetricComputation(keys=[key], result=result)
        return [*computations, derived]


def _count_classes(matrix: Mapping[Any, float]) -> Iterable[ClassCounts]:
    found: dict[int, float] = defaultdict(float)
    actual: dict[int, float] = defaultdict(float)
    predicted: dict[int, float] = defaultdict(float)
    for entry, weight in matrix.items():
        actual[entry.actual_class_id] += weight
        predicted[entry.predicted_class_id] += weight
        if entry.actual_class_id == entry.predicted_class_id:
            found[entry.actual_class_id] += weight
    for index in actual.keys() | predicted.keys():
        right = found[index]
        yield ClassCounts(right, predicted[index] - right, actual[index] - right)


class MacroPrecision(MacroMetric):
    """Of what is said to be of a class, the share that is; 0 where nothing is."""

    def of_class(self, counts: ClassCounts) -> float:
        """0 where nothing is said to be of the class."""
        said = counts.found + counts.false
        return counts.found / said if said else 0.0


class MacroRecall(MacroMetric):
    """Of what is of a class, the share that is found; 0 where nothing is of it."""

    def of_class(self, counts: ClassCounts) -> float:
        """0 where nothing is of the class."""
        there = counts.found + counts.missed
        return counts.found / there if there else 0.0


class MacroF1(MacroMetric):
    """The harmonic mean of precision and recall."""

    def of_class(self, counts: ClassCounts) -> float:
        """Of a class that occurs, so that something is counted."""
        both = 2 * counts.found + counts.false + counts.missed
        return 2 * counts.found / both if both else 0.0


class MulticlassBalancedAccuracy(MacroMetric):
    """The mean recall of the classes that there are examples of."""

    def of_class(self, counts: ClassCounts) -> float:
        """NaN for a class that is only ever predicted."""
        there = counts.found + counts.missed
        return counts.found / there if there else math.nan


@dataclass(frozen=True)
class Spread:
    """Labels by their mean and squared distances from it, which adding up squares would lose.

    Each is [slices] float64.
    """

    weight: Any
    mean: Any
    squares: Any
    errors: Any

    @classmethod
    def empty(cls, slices: int) -> Spread:
        """Of no examples."""
        return cls(*(np.zeros(slices) for _ in range(4)))

    def add(self, other: Spread) -> Spread:
        """Both together, by Chan, Golub and LeVeque's formula (1979)."""
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight != 0)
        distance = other.mean - self.mean
        return Spread(
            weight,
            self.mean + distance * share,
            self.squares + other.squares + distance**2 * self.weight * share,
            self.errors + other.errors,
        )

    def padded(self, slices: int) -> Spread:
        """The same with room for more slices."""
        more = max(slices - len(self.weight), 0)
        return Spread(*(np.pad(part, (0, more)) for part in self.parts))

    def at(self, places: np.ndarray, slices: int) -> Spread:
        """The slices at other places, [slices of this one], among so many."""
        moved = Spread.empty(slices)
        for part, into in zip(self.padded(len(places)).parts, moved.parts, strict=True):
            into[places] = part
        return moved

    def at_one(self, number: int) -> Spread:
        """One slice, [1]."""
        return Spread(*(part[number : number + 1] for part in self.parts))

    @property
    def parts(self) -> tuple[Any, ...]:
        """In the order of the fields."""
        return self.weight, self.mean, self.squares, self.errors


class CoefficientOfDetermination(metric_types.Metric):
    """R²: 1 less the squared errors over those of the labels' mean; below 0 if that is better."""

    def __init__(self, name: str) -> None:
        super().__init__(metric_util.merge_per_key_computations(_determination), name=name)


def _determination(
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

    def read(element: metric_types.StandardMetricInputs) -> Iterable[tuple[Any, Any, Any]]:
        found: Iterable[tuple[Any, Any, Any]] = metric_util.to_label_prediction_example_weight(
            element,
            eval_config=eval_config,
            model_name=model_name,
            output_name=output_name,
            example_weighted=example_weighted,
        )
        return found

    combiner = _DeterminationCombiner(key, read)
    return [metric_types.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)]


class _DeterminationCombiner(beam.CombineFn):
    def __init__(
        self,
        key: metric_types.MetricKey,
        read: Callable[[metric_types.StandardMetricInputs], Iterable[tuple[Any, Any, Any]]],
    ) -> None:
        super().__init__()
        self._key = key
        self._read = read

    def create_accumulator(self) -> Spread:
        return Spread.empty(1)

    def add_input(self, accumulator: Spread, element: metric_types.StandardMetricInputs) -> Spread:
        for label, prediction, example_weight in self._read(element):
            truth, weight = float(label.item()), float(example_weight.item())
            errors = weight * (truth - float(prediction.item())) ** 2
            row = (np.array([number]) for number in (weight, truth, 0.0, errors))
            accumulator = accumulator.add(Spread(*row))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Spread]) -> Spread:
        total = Spread.empty(1)
        for accumulator in accumulators:
            total = total.add(accumulator)
        return total

    def extract_output(self, accumulator: Spread) -> dict[metric_types.MetricKey, float]:
        errors, squares = float(accumulator.errors[0]), float(accumulator.squares[0])
        return {self._key: 1 - errors / squares if squares else math.nan}
