"""Metrics that TFMA lacks or defines differently; they equal scikit-learn's metrics.

TFMA imports a metric by its module and class name, and constructs it from the name in the config.
TFMA requests the computations for one model and one output at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2

from components.evaluator.batched.statistics import RowsCombiner, Statistic

Computations: TypeAlias = metric_types.MetricComputations
AnyKey: TypeAlias = metric_types.MetricKey | metric_types.PlotKey


class OwnMetric(metric_types.Metric):
    """Base of this project's metrics, which have one value for each model and output."""

    key_type: ClassVar[Any] = metric_types.MetricKey
    """The type of the metric's keys."""

    def __init__(self, name: str) -> None:
        super().__init__(metric_util.merge_per_key_computations(self._computations_for), name=name)

    @abstractmethod
    def computations_for(self, key: Any, eval_config: config_pb2.EvalConfig | None) -> Computations:
        """Returns the computations; the last computation returns the metric's value under the
        key.
        """

    def _computations_for(
        self,
        name: str,
        eval_config: config_pb2.EvalConfig | None = None,
        model_name: str = "",
        output_name: str = "",
        example_weighted: bool = False,
    ) -> Computations:
        key = self.key_type(
            name, model_name=model_name, output_name=output_name, example_weighted=example_weighted
        )
        return self.computations_for(key, eval_config)


def key_options(key: AnyKey) -> dict[str, Any]:
    """Returns the keyword arguments for other computations of the same model and output."""
    names = ("model_name", "output_name", "example_weighted")
    return {name: getattr(key, name) for name in names}


def statistic_computations(
    key: metric_types.MetricKey,
    eval_config: config_pb2.EvalConfig | None,
    kind: type[Statistic],
    metric: Any = None,
) -> Computations:
    """Returns the computation of a statistic of this project.

    Args:
      key: the key of the result.
      eval_config: TFMA's config.
      kind: the class of the statistic.
      metric: the metric that computes the value of each row, or None if the statistic needs no
        metric.
    """
    combiner = RowsCombiner(key, eval_config, kind, metric)
    return [metric_types.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)]


def add_derived(
    computations: Computations, key: AnyKey, derive: Callable[[Any], Any]
) -> Computations:
    """Returns the computations and a further one, which derives a value from the last result."""
    source = computations[-1].keys[-1]

    def result(metrics: Any) -> dict[Any, Any]:
        return {key: derive(metrics[source])}

    return [*computations, metric_types.DerivedMetricComputation(keys=[key], result=result)]
