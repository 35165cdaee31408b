"""The TFMA computations of an evaluation, and the metrics that are derived from their results."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import types
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.utils import model_util

from components.evaluator.batched.statistics import Statistic, find_statistic
from components.evaluator.batched.tfma_statistics import Histogram
from components.evaluator.slices import metric_classes, plain_metrics

Metrics = dict[Any, Any]
"""The values of metrics and plots, by TFMA's keys."""


@dataclass(frozen=True)
class Source:
    """A TFMA computation with a statistic that is a sum over the rows."""

    combiner: Any
    model: str
    """The name of the model whose predictions the computation reads."""
    resampled: Mapping[str, int]
    """The names of the resampled metrics, each with its index in the list that the statistic's
    `resampled` returns."""

    @classmethod
    def of(
        cls,
        computation: metric_types.MetricComputation,
        classes: Mapping[str, str],
        plain: Collection[str],
    ) -> Source | None:
        """Returns the source of a computation, or None if there is no statistic for the
        computation.

        Args:
          classes: the class of each metric in the config, by the metric's name.
          plain: the names of the metrics that have no settings; the formulas of derived metrics
            support no settings.
        """
        # The standard preprocessor only selects inputs.
        standard = metric_types.StandardMetricInputsPreprocessor
        if any(
            type(preprocessor) is not standard for preprocessor in computation.preprocessors or ()
        ):
            return None
        statistic = find_statistic(computation.combiner)
        if statistic is None:
            return None
        resampled: dict[str, int] = {}
        names = [key.name for key in computation.keys]
        if statistic.is_metric and classes.keys() >= set(names):
            resampled = {name: index for index, name in enumerate(names)}
        elif statistic.has_formulas:
            indices = {class_name: index for index, class_name in enumerate(statistic.derived)}
            resampled = {
                name: indices[class_name]
                for name, class_name in classes.items()
                if name in plain and class_name in indices
            }
        return cls(computation.combiner, computation.keys[0].model_name, resampled)


@dataclass(frozen=True)
class Computations:
    """The computations that TFMA would run for an EvalConfig."""

    base: list[Source]
    derived: list[metric_types.DerivedMetricComputation]
    classes: Mapping[str, str]
    """The class of each metric in the config, by the metric's name."""
    baseline: str | None
    """TFMA's name of the model in service, or None if there is no model in service."""

    @classmethod
    def of(cls, config: tfma.EvalConfig) -> Computations | None:
        """Returns the computations of a config, or None if one of them has no statistic."""
        if config.options.compute_confidence_intervals.value:
            return None
        classes, plain = metric_classes(config), plain_metrics(config)
        base, derived = [], []
        # Of equal computations the first remains, as in TFMA: later computations may depend on it.
        for computation in dict.fromkeys(
            metric_specs.to_computations(config.metrics_specs, config)
        ):
            if type(computation) is metric_types.DerivedMetricComputation:
                derived.append(computation)
                continue
            is_plain = type(computation) is metric_types.MetricComputation
            source = Source.of(computation, classes, plain) if is_plain else None
            if source is None:
                return None
            base.append(source)
        spec = model_util.get_baseline_model_spec(config)
        return cls(base, derived, classes, spec.name if spec else None)

    @property
    def have_plots(self) -> bool:
        """Whether some results are curves or matrices, which TFMA does not store with the
        metrics.
        """
        keys = [key for computation in self.derived for key in computation.keys]
        return any(is_plot(key) and not _is_private(key) for key in keys)

    @property
    def resampled(self) -> frozenset[str]:
        """The names of the metrics that are resampled."""
        return frozenset(name for source in self.base for name in source.resampled)

    def start(self) -> list[Statistic]:
        """Returns an empty statistic for each computation in `base`."""
        statistics = (find_statistic(source.combiner) for source in self.base)
        return [statistic for statistic in statistics if statistic is not None]

    def results(self, statistics: Iterable[tuple[Statistic, np.ndarray]]) -> Metrics:
        """Returns the metrics and plots of a slice, with the differences to the model in service.

        Args:
          statistics: the statistics of `base`, each with the numbers of the slice's parts.
        """
        derived_keys = [key for computation in self.derived for key in computation.keys]
        metrics: Metrics = {}
        matrices: Metrics = {}
        for statistic, parts in statistics:
            if isinstance(statistic, Histogram):
                output, own_matrices = statistic.with_matrices(parts, derived_keys)
                matrices |= own_matrices
            else:
                output = statistic.output(parts)
            metrics |= output
        for computation in self.derived:
            has_matrices = all(key in matrices for key in computation.keys)
            metrics |= matrices if has_matrices else computation.result(metrics)
        metrics |= self._differences(metrics)
        return {key: value for key, value in metrics.items() if not _is_private(key)}

    def _differences(self, metrics: Metrics) -> Metrics:
        if self.baseline is None:
            return {}
        return {
            key.make_diff_key(): value - metrics[key.make_baseline_key(self.baseline)]
            for key, value in metrics.items()
            if key.model_name != self.baseline
            and not _is_private(key)
            and not key.is_diff
            and key.make_baseline_key(self.baseline) in metrics
            and _is_number(value)
        }


def computations_of(config: tfma.EvalConfig) -> Computations:
    """Returns the computations of a config that `Computations.of` supports; the result is
    cached.
    """
    return _computations(config.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=4)
def _computations(config: bytes) -> Computations:
    # The result is cached: each file needs the computations, and TFMA takes long to create them.
    computations = Computations.of(tfma.EvalConfig.FromString(config))
    assert computations is not None  # noqa: S101 - checked before the pipeline was made
    return computations


def _is_private(key: metric_types.MetricKey) -> bool:
    return key.name.startswith("_") and not key.name.startswith("__")


def is_plot(key: metric_types.MetricKey) -> bool:
    """Returns whether the key is of a plot, which TFMA does not store with the metrics."""
    return isinstance(key, metric_types.PlotKey)


def _is_number(value: Any) -> bool:
    """Returns whether TFMA computes the difference of two values of this type."""
    if isinstance(value, np.ndarray):
        return np.issubdtype(value.dtype, np.number)
    return isinstance(value, (numbers.Number, types.StructuredMetricValue))
