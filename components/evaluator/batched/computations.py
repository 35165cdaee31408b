"""The TFMA computations that the metrics of an evaluation need, and the metrics derived from
them.
"""

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
"""The values of metrics by TFMA's keys."""


@dataclass(frozen=True)
class Source:
    """A TFMA computation whose statistic is added up over the rows."""

    combiner: Any
    model: str
    """The name of the model whose predictions the computation reads."""
    resampled: Mapping[str, int]
    """The names of the metrics that are resampled, each with its place in the list that the
    statistic's `resampled` returns."""

    @classmethod
    def of(
        cls,
        computation: metric_types.MetricComputation,
        classes: Mapping[str, str],
        plain: Collection[str],
    ) -> Source | None:
        """Returns the source for a computation; None if the computation cannot be done by batches.

        Args:
          computation: a computation of TFMA.
          classes: the class of each metric in the config, by the metric's name.
          plain: the names of the metrics without arguments, as the formulas of derived metrics take
            none.
        """
        # The standard preprocessor only selects inputs and changes nothing.
        usual = metric_types.StandardMetricInputsPreprocessor
        if any(type(one) is not usual for one in computation.preprocessors or ()):
            return None
        statistic = find_statistic(computation.combiner)
        if statistic is None:
            return None
        resampled: dict[str, int] = {}
        names = [key.name for key in computation.keys]
        if statistic.is_metric and classes.keys() >= set(names):
            resampled = {name: place for place, name in enumerate(names)}
        elif statistic.has_formulas:
            places = {kind: place for place, kind in enumerate(statistic.derived)}
            resampled = {n: places[k] for n, k in classes.items() if n in plain and k in places}
        return cls(computation.combiner, computation.keys[0].model_name, resampled)


@dataclass(frozen=True)
class Computations:
    """The computations that TFMA would run for an EvalConfig."""

    base: list[Source]
    derived: list[metric_types.DerivedMetricComputation]
    classes: Mapping[str, str]
    """The class of each metric in the config, by the metric's name."""
    baseline: str | None
    """The name of the model in service; None if there is none."""

    @classmethod
    def of(cls, config: tfma.EvalConfig) -> Computations | None:
        """Returns the computations of a config; None if one of them cannot be done by batches."""
        if config.options.compute_confidence_intervals.value:
            return None
        classes, plain = metric_classes(config), plain_metrics(config)
        base, derived = [], []
        # The first of equal computations, as in TFMA: later ones may depend on it.
        for one in dict.fromkeys(metric_specs.to_computations(config.metrics_specs, config)):
            if type(one) is metric_types.DerivedMetricComputation:
                derived.append(one)
                continue
            is_plain = type(one) is metric_types.MetricComputation
            source = Source.of(one, classes, plain) if is_plain else None
            if source is None:
                return None
            base.append(source)
        spec = model_util.get_baseline_model_spec(config)
        return cls(base, derived, classes, spec.name if spec else None)

    @property
    def have_plots(self) -> bool:
        """Whether some of the results are curves or matrices, which TFMA stores apart from
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
        found = (find_statistic(source.combiner) for source in self.base)
        return [statistic for statistic in found if statistic is not None]

    def results(self, gathered: Iterable[tuple[Statistic, np.ndarray]]) -> Metrics:
        """Returns the metrics and plots of a slice, with the differences to the model in service.

        Args:
          gathered: the statistics of `base`, each with the numbers of its parts that make up the
            slice.
        """
        wanted = [key for computation in self.derived for key in computation.keys]
        found: Metrics = {}
        matrices: Metrics = {}
        for statistic, parts in gathered:
            if isinstance(statistic, Histogram):
                output, also = statistic.with_matrices(parts, wanted)
                matrices |= also
            else:
                output = statistic.output(parts)
            found |= output
        for computation in self.derived:
            is_known = all(key in matrices for key in computation.keys)
            found |= matrices if is_known else computation.result(found)
        found |= self._differences(found)
        return {key: value for key, value in found.items() if not _is_private(key)}

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
    """Returns the computations of a config that can be evaluated by batches."""
    return _computations(config.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=4)
def _computations(config: bytes) -> Computations:
    # Cached, as each file needs them and TFMA takes long to make them.
    found = Computations.of(tfma.EvalConfig.FromString(config))
    assert found is not None  # noqa: S101 - checked before the pipeline was made
    return found


def _is_private(key: metric_types.MetricKey) -> bool:
    return key.name.startswith("_") and not key.name.startswith("__")


def is_plot(key: metric_types.MetricKey) -> bool:
    """Returns whether TFMA stores the result under this key apart from the metrics."""
    return isinstance(key, metric_types.PlotKey)


def _is_number(value: Any) -> bool:
    """Returns whether TFMA computes differences of values like this one."""
    if isinstance(value, np.ndarray):
        return np.issubdtype(value.dtype, np.number)
    return isinstance(value, (numbers.Number, types.StructuredMetricValue))
