"""The intervals of metrics, and of their differences to the model in service's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from scipy import stats
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.slicer import slicer_lib

from components.evaluator.batched.measuring import Metrics
from components.evaluator.batched.resampling.formulas import Values
from components.evaluator.batched.resampling.groups import GROUPS, draws
from components.evaluator.batched.resampling.resampler import Resampler
from components.evaluator.batched.resampling.tally import Tally, computations_of
from components.evaluator.batched.slices import SliceKey
from components.evaluator.eval_config import metric_classes
from components.evaluator.noise import Interval, MetricNoise, Noise
from components.evaluator.slices import slice_name
from components.evaluator.verdict_settings import VerdictSettings

DEFINED_SHARE = 0.9
"""Of resamples that have a metric at all, such as an AUC of both classes, for an interval of it."""
LEAST_EXAMPLES = 20
"""A bootstrap of fewer says too little of how they spread."""
SHARES = frozenset(
    {"BinaryAccuracy", "SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy", "Coverage"}
)
"""Means of yes and no."""


MOST_WITH_INTERVALS = 20
"""Slices without thresholds, those of the most examples, of which intervals are found as well."""


def find_noise(
    config: tfma.EvalConfig,
    tally: Tally,
    sliced: Mapping[int, Metrics],
    settings: VerdictSettings,
    held: Callable[[SliceKey], bool],
) -> Noise:
    """What is known of the chance in an evaluation.

    Args:
      config: TFMA's.
      tally: with all rows.
      sliced: the metrics of the slices that are reported, by number, with the most examples first.
      settings: the confidence of the intervals, and which rows depend on one another.
      held: whether a slice has thresholds.
    """
    intervals, found, others = Intervals(config, tally, settings), {}, 0
    for number, metrics in sliced.items():
        key = tally.measurement.slicer.keys[number]
        is_held = not key or held(key)
        others += not is_held
        with_intervals = is_held or others <= MOST_WITH_INTERVALS
        found[name_of(key)] = intervals.of_slice(number, metrics, with_intervals)
    without = sorted(set(metric_classes(config)) - intervals.metrics)
    return Noise(
        confidence=settings.confidence,
        without=without if settings.confidence is not None else [],
        slices=found,
        keeps_ties=bool(settings.keeps_ties),
        not_compared=settings.not_compared,
        notes=tally.notes() + _unmeasured_notes(found),
    )


class Intervals:
    """Finds the intervals of the slices of one evaluation."""

    def __init__(self, config: tfma.EvalConfig, tally: Tally, settings: VerdictSettings) -> None:
        """Asks which metrics there are.

        Args:
          config: TFMA's.
          tally: with all rows.
          settings: the confidence of the intervals, and which rows depend on one another.
        """
        computations = computations_of(config)
        self._resampler = Resampler.of(config, computations)
        self._classes = metric_classes(config)
        self._tally = tally
        self._confidence = settings.confidence
        self._others = settings.others
        self._are_dependent = bool(settings.dependence.column)
        self._baseline = computations.baseline

    @property
    def metrics(self) -> frozenset[str]:
        """Those that there may be intervals of."""
        return self._resampler.metrics

    def of_slice(
        self, number: int, metrics: Metrics, with_intervals: bool
    ) -> dict[str, MetricNoise]:
        """What is known of each metric of a slice besides its value.

        Args:
          number: of the slice.
          metrics: what TFMA made of it.
          with_intervals: whether there is enough time for that.
        """
        grouped, resampler = self._tally.grouped, self._resampler
        groups = grouped.parts_of(number)[1]
        units = len(groups) if self._are_dependent else None
        exact = resampler.values(grouped, number, np.ones((1, GROUPS)))
        drawn: Mapping[tuple[str, str], Values] = {}
        if with_intervals and self._confidence is not None:
            times = draws()
            if units is not None:  # Of few units, many resamples have drawn none.
                times = times[times[:, groups].any(axis=1)]
            drawn = resampler.values(grouped, number, times)
        found: dict[str, MetricNoise] = {}
        counts = [float(v) for key, v in metrics.items() if key.name == "example_count"]
        for key, value in metrics.items():
            if key.name not in self._classes or key.is_diff or key.model_name == self._baseline:
                continue
            own = exact.get((key.model_name, key.name))
            defined = _is_finite(value) and (own is None or _is_finite(own[0]))
            noise = MetricNoise(defined=defined)
            if defined and own is not None and drawn:
                moved = drawn[key.model_name, key.name] + (float(value) - own[0])
                examples = max(counts, default=0.0)
                noise = self._noise(key, moved, metrics, drawn, exact, examples, units)
            found[key.name] = noise
        return found

    def _noise(
        self,
        key: metric_types.MetricKey,
        values: Values,
        metrics: Metrics,
        drawn: Mapping[tuple[str, str], Values],
        exact: Mapping[tuple[str, str], Values],
        examples: float,
        units: int | None,
    ) -> MetricNoise:
        interval = self._interval(values, units)
        if interval is not None and interval.low == interval.high:
            independent = examples if units is None else units
            interval = self._of_constant(key.name, interval.low, independent)
        if examples < LEAST_EXAMPLES:
            interval = None
        theirs = (self._baseline, key.name) if self._baseline else None
        if theirs is None or theirs not in drawn:
            return MetricNoise(interval=interval)
        in_service = metrics[key.make_baseline_key(self._baseline)]
        moved = drawn[theirs] + (float(in_service) - exact[theirs][0])
        differences = values - moved
        difference = self._interval(differences, units)
        shared = None
        if key.name in self._others:
            shared = self._interval(differences, units, len(self._others))
        is_unmeasurable = difference is None and (
            examples < LEAST_EXAMPLES or not _is_mostly_defined(differences)
        )
        return MetricNoise(
            interval=interval,
            difference=difference,
            shared=shared,
            is_unmeasurable=is_unmeasurable,
        )

    def _interval(self, values: Values, units: int | None, sharing: int = 1) -> Interval | None:
        """Between percentiles; None where too many resamples have no number, or of one unit.

        Of few units the percentiles are as far out as quantiles of Student's t would be, as a
        bootstrap of few clusters is too narrow (Cameron, Gelbach and Miller, 2008).

        Args:
          values: of the resamples.
          units: of examples that depend on one another; None where none do.
          sharing: intervals of which the confidence holds together (Bonferroni).
        """
        if not _is_mostly_defined(values):
            return None
        numbers = values[np.isfinite(values)]
        assert self._confidence is not None  # noqa: S101 - else nothing is drawn
        beyond = (1 - self._confidence) / 2 / sharing
        if units is not None:
            if units < 2:
                return None
            quantile = stats.t.isf(beyond, units - 1) * math.sqrt(units / (units - 1))
            beyond = float(stats.norm.sf(quantile))
        low, high = np.quantile(numbers, [beyond, 1 - beyond])
        return Interval(low=float(low), high=float(high))

    def _of_constant(self, name: str, value: float, examples: float) -> Interval:
        """Where all examples are right, or wrong: how many of others may have been missed.

        By the probability of seeing none of them, (1 - share) ** examples.
        """
        if self._classes[name] not in SHARES or not examples or self._confidence is None:
            return Interval(low=value, high=value)
        missed = 1 - ((1 - self._confidence) / 2) ** (1 / examples)
        return Interval(low=max(value - missed, 0.0), high=min(value + missed, 1.0))


def _unmeasured_notes(found: Mapping[str, Mapping[str, MetricNoise]]) -> list[str]:
    """Which slices are too small for a comparison with the model in service."""
    unmeasured: dict[str, list[str]] = {}
    for name, metrics in found.items():
        for metric, noise in metrics.items():
            if name and noise.is_unmeasurable:
                unmeasured.setdefault(metric, []).append(name)
    return [
        f"slices with too few examples of some class to compare {metric} with the model in "
        f"service's: {len(slices):,}, such as {slices[0]}; they do not hold the model back"
        for metric, slices in sorted(unmeasured.items())
    ]


def name_of(key: SliceKey) -> str:
    """The name of a slice."""
    return slice_name(slicer_lib.serialize_slice_key(key).single_slice_keys)


def _is_mostly_defined(values: Values) -> bool:
    return bool(np.isfinite(values).sum() >= DEFINED_SHARE * len(values))


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return True
