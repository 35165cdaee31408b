"""Metrics of classes: averages over them, and the average precision.

TFMA's own macro averages need the number of classes in the Evaluator's config, which is written
before the data is read.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    metric_types,
    multi_class_confusion_matrix_metrics,
)
from tensorflow_model_analysis.proto import config_pb2

from components.evaluator.batched.statistics import THRESHOLDS
from components.evaluator.own_metrics.own import Computations, OwnMetric, options_of, with_derived


class AveragePrecision(OwnMetric):
    """The precisions at all thresholds, each weighted by the recall that it adds."""

    def __init__(self, name: str = "average_precision", num_thresholds: int = THRESHOLDS) -> None:
        super().__init__(name)
        self._thresholds = num_thresholds

    def of_key(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """From TFMA's matrices at these thresholds."""
        matrices = binary_confusion_matrices.binary_confusion_matrices(
            num_thresholds=self._thresholds, eval_config=eval_config, **options_of(key)
        )
        return with_derived(matrices, key, _average_precision)


def _average_precision(matrices: Any) -> float:
    found, false = np.array(matrices.tp), np.array(matrices.fp)
    if not found[0]:
        return math.nan
    precision = found / np.maximum(found + false, np.finfo(float).tiny)
    added = found - np.append(found[1:], 0)
    return float(np.sum(precision * added) / found[0])


class ClassCounts(NamedTuple):
    """Of one class: the weights of those found, wrongly said to be of it, and missed."""

    found: float
    false: float
    missed: float


class MacroMetric(OwnMetric):
    """The mean over the classes that occur, of a class by the most probable one."""

    @abstractmethod
    def of_class(self, counts: ClassCounts) -> float:
        """The metric of one class; NaN leaves it out."""

    def of_key(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> Computations:
        """From TFMA's matrix of pairs of classes."""
        matrices = multi_class_confusion_matrix_metrics.multi_class_confusion_matrices(
            thresholds=[0.0], eval_config=eval_config, **options_of(key)
        )
        return with_derived(matrices, key, self._mean)

    def _mean(self, matrices: Mapping[float, Mapping[Any, float]]) -> float:
        (matrix,) = matrices.values()
        return float(np.nanmean([self.of_class(counts) for counts in _count_classes(matrix)]))


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
