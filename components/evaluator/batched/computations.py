"""Which computations of TFMA's the metrics of an evaluation need, and what follows from them."""

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
"""Values by TFMA's keys."""


@dataclass(frozen=True)
class Source:
    """A computation that rows are added up for."""

    combiner: Any
    model: str
    """Whose predictions it is of."""
    resampled: Mapping[str, int]
    """The metrics by name that resamples are made of, and their places in what the statistic's
    `resampled` gives."""

    @classmethod
    def of(
        cls,
        computation: metric_types.MetricComputation,
        classes: Mapping[str, str],
        plain: Collection[str],
    ) -> Source | None:
        """That of a computation; None where it cannot be done by batches.

        Args:
          computation: one of TFMA's.
          classes: the class of each metric that people asked for, by its name.
          plain: the names of those without arguments, as formulas of derived metrics have none.
        """
        # Those that only say which inputs are looked at change nothing.
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
    """What is computed for an EvalConfig, by TFMA's own rules."""

    base: list[Source]
    derived: list[metric_types.DerivedMetricComputation]
    classes: Mapping[str, str]
    """The class of each metric that people asked for, by its name."""
    baseline: str | None
    """What the model in service is called, if there is one."""

    @classmethod
    def of(cls, config: tfma.EvalConfig) -> Computations | None:
        """Those of a config; None where one of them cannot be done by batches."""
        if config.options.compute_confidence_intervals.value:
            return None
        classes, plain = metric_classes(config), plain_metrics(config)
        base, derived = [], []
        # Of equal ones the first, as TFMA has it: those after it may need it.
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
        """Whether some of the results are curves or matrices, which TFMA keeps beside metrics."""
        keys = [key for computation in self.derived for key in computation.keys]
        return any(is_plot(key) and not _is_private(key) for key in keys)

    @property
    def resampled(self) -> frozenset[str]:
        """The names of the metrics that resamples are made of."""
        return frozenset(name for source in self.base for name in source.resampled)

    def start(self) -> list[Statistic]:
        """Returns an empty statistic of each of `base`."""
        found = (find_statistic(source.combiner) for source in self.base)
        return [statistic for statistic in found if statistic is not None]

    def results(self, gathered: Iterable[tuple[Statistic, np.ndarray]]) -> Metrics:
        """Returns the metrics and plots of a slice, with the differences to the model in service.

        Args:
          gathered: the statistics of `base`, and which of their parts the slice is.
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

    def _differences(self, found: Metrics) -> Metrics:
        if self.baseline is None:
            return {}
        return {
            key.make_diff_key(): value - found[key.make_baseline_key(self.baseline)]
            for key, value in found.items()
            if key.model_name != self.baseline
            and not _is_private(key)
            and not key.is_diff
            and key.make_baseline_key(self.baseline) in found
            and _is_number(value)
        }


def computations_of(config: tfma.EvalConfig) -> Computations:
    """Returns the computations of a config of which it is known that there are some."""
    return _computations(config.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=4)
def _computations(config: bytes) -> Computations:
    # Kept, as they are asked for with each file, and TFMA takes long to make them.
    found = Computations.of(tfma.EvalConfig.FromString(config))
    assert found is not None  # noqa: S101 - asked before the pipeline was made
    return found


def _is_private(key: metric_types.MetricKey) -> bool:
    return key.name.startswith("_") and not key.name.startswith("__")


def is_plot(key: metric_types.MetricKey) -> bool:
    """Returns whether TFMA keeps what has this key beside the metrics."""
    return isinstance(key, metric_types.PlotKey)


def _is_number(value: Any) -> bool:
    """Returns whether TFMA takes differences of it."""
    if isinstance(value, np.ndarray):
        return np.issubdtype(value.dtype, np.number)
    return isinstance(value, (numbers.Number, types.StructuredMetricValue))
