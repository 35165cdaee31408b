"""The confidence intervals of metrics, and TFMA's validation, corrected by the intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2, validation_result_pb2
from tensorflow_model_analysis.slicer import slicer_lib

from components.evaluator.batched.accumulator import GROUPS, Accumulator, resample_counts
from components.evaluator.batched.computations import Metrics
from components.evaluator.batched.slices import SliceKey
from components.evaluator.batched.statistics import Values
from components.evaluator.intervals import (
    EvaluationIntervals,
    Interval,
    MetricIntervals,
    VerdictSettings,
)
from components.evaluator.slices import BASELINE, metric_name, slice_name
from trainer_module.errors import counted

MIN_DEFINED_SHARE = 0.9
"""The minimum share of resamples in which a metric has to be defined to have an interval. An AUC,
for example, is undefined in resamples with a single class."""
MIN_EXAMPLES = 20
"""The minimum number of examples for an interval; with fewer, a bootstrap interval is too
narrow."""
SHARES = frozenset(
    {"BinaryAccuracy", "SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy", "Coverage"}
)
"""The classes of the metrics that are means of zeros and ones."""
MAX_WITH_INTERVALS = 20
"""The maximum number of slices without thresholds that have intervals; the largest slices do."""


def compute_intervals(
    accumulator: Accumulator,
    sliced: Mapping[int, Metrics],
    settings: VerdictSettings,
    has_thresholds: Callable[[SliceKey], bool],
) -> EvaluationIntervals:
    """Returns the confidence intervals of an evaluation.

    Args:
      sliced: the metrics of the reported slices by number; the largest slices come first.
    """
    intervals, others = {}, 0
    for number, metrics in sliced.items():
        key = accumulator.slicer.keys[number]
        is_important = not key or has_thresholds(key)
        others += not is_important
        with_intervals = is_important or others <= MAX_WITH_INTERVALS
        intervals[key_name(key)] = _SliceIntervals(
            accumulator, number, metrics, settings, with_intervals
        ).find()
    computations = accumulator.computations
    without = sorted(computations.classes.keys() - computations.resampled)
    return EvaluationIntervals(
        confidence=settings.confidence,
        without=without if settings.confidence is not None else [],
        slices=intervals,
        keeps_ties=bool(settings.keeps_ties),
        not_compared=settings.not_compared,
        notes=accumulator.notes() + _unmeasured_notes(intervals),
    )


class _SliceIntervals:
    """Computes the confidence intervals of one slice."""

    def __init__(
        self,
        accumulator: Accumulator,
        number: int,
        metrics: Metrics,
        settings: VerdictSettings,
        with_intervals: bool,
    ) -> None:
        self._metrics = metrics
        self._settings = settings
        self._classes = accumulator.computations.classes
        self._baseline = accumulator.computations.baseline
        groups = accumulator.groups_of(number)
        # The number of units of dependent rows, or None if all rows are independent.
        self._units = len(groups) if settings.dependence.column else None
        counts = (float(v) for key, v in metrics.items() if key.name == "example_count")
        self._examples = max(counts, default=0.0)
        exact = accumulator.resampled(number, np.ones((1, GROUPS)))
        self._exact = {key: float(values[0]) for key, values in exact.items()}
        self._drawn: Mapping[tuple[str, str], Values] = {}
        if with_intervals and settings.confidence is not None:
            times = resample_counts()
            if self._units is not None:  # If there are few units, many resamples draw no unit.
                times = times[times[:, groups].any(axis=1)]
            self._drawn = accumulator.resampled(number, times)

    def find(self) -> dict[str, MetricIntervals]:
        """Returns the intervals of each metric of the slice."""
        intervals: dict[str, MetricIntervals] = {}
        for key, value in self._metrics.items():
            if key.name not in self._classes or key.is_diff or key.model_name == self._baseline:
                continue
            own = self._exact.get((key.model_name, key.name))
            defined = _is_finite(value) and (own is None or math.isfinite(own))
            intervals[key.name] = MetricIntervals(defined=defined)
            if defined and own is not None and self._drawn:
                intervals[key.name] = self._metric_intervals(key, value)
        return intervals

    def _centred(self, key: metric_types.MetricKey, value: Any) -> Values:
        """Returns the metric of all resamples, shifted by the difference to TFMA's exact value."""
        name = (key.model_name, key.name)
        return self._drawn[name] + (float(value) - self._exact[name])

    def _metric_intervals(self, key: metric_types.MetricKey, value: Any) -> MetricIntervals:
        values = self._centred(key, value)
        interval = self._interval(values)
        if interval is not None and interval.low == interval.high:
            interval = self._constant_interval(key.name, interval.low)
        is_small = self._examples < MIN_EXAMPLES
        if is_small:
            interval = None
        if not self._baseline or (self._baseline, key.name) not in self._drawn:
            return MetricIntervals(interval=interval)
        baseline_key = key.make_baseline_key(self._baseline)
        differences = values - self._centred(baseline_key, self._metrics[baseline_key])
        difference, shared = self._interval(differences), None
        if key.name in self._settings.others:
            shared = self._interval(differences, len(self._settings.others))
        return MetricIntervals(
            interval=interval,
            difference=difference,
            shared=shared,
            is_unmeasurable=difference is None
            and (is_small or not _is_mostly_defined(differences)),
        )

    @property
    def _tail_probability(self) -> float:
        """The probability beyond each end of an interval."""
        assert self._settings.confidence is not None  # noqa: S101 - else no resamples
        return (1 - self._settings.confidence) / 2

    def _interval(self, values: Values, comparisons: int = 1) -> Interval | None:
        """Returns the interval between percentiles of the resamples.

        The result is None if the metric is undefined in too many resamples, or if there is only one
        unit. The bootstrap interval of few units would be too narrow (Cameron, Gelbach and Miller,
        2008): it is widened to the quantiles of Student's t.

        Args:
          comparisons: the number of intervals among which the error is divided (Bonferroni).
        """
        if not _is_mostly_defined(values):
            return None
        tail, units = self._tail_probability / comparisons, self._units
        if units is not None:
            if units < 2:
                return None
            quantile = stats.t.isf(tail, units - 1) * math.sqrt(units / (units - 1))
            tail = float(stats.norm.sf(quantile))
        low, high = np.quantile(values[np.isfinite(values)], [tail, 1 - tail])
        return Interval(low=float(low), high=float(high))

    def _constant_interval(self, name: str, value: float) -> Interval:
        """Returns the interval of a metric that is equal in all resamples, such as an accuracy of
        1.

        If the metric is a share, the margin is the error rate at which the probability of observing
        no error, (1 - rate) ** examples, equals the probability beyond an end of the interval.
        """
        examples = self._examples if self._units is None else self._units
        if self._classes[name] not in SHARES or not examples:
            return Interval(low=value, high=value)
        margin = 1 - self._tail_probability ** (1 / examples)
        return Interval(low=max(value - margin, 0.0), high=min(value + margin, 1.0))


def _unmeasured_notes(by_slice: Mapping[str, Mapping[str, MetricIntervals]]) -> list[str]:
    """Returns notes on slices that are too small for a comparison with the model in service."""
    unmeasured: dict[str, list[str]] = {}
    for name, metrics in by_slice.items():
        for metric, intervals in metrics.items():
            if name and intervals.is_unmeasurable:
                unmeasured.setdefault(metric, []).append(name)
    return [
        f"{metric} is not compared with the model in service on {counted(len(slices), 'slice')} "
        f"with too few examples, such as {slices[0]}"
        for metric, slices in sorted(unmeasured.items())
    ]


def key_name(key: SliceKey) -> str:
    """Returns the name of the slice with a key."""
    return slice_name(slicer_lib.serialize_slice_key(key).single_slice_keys)


def _is_mostly_defined(values: Values) -> bool:
    return bool(np.isfinite(values).sum() >= MIN_DEFINED_SHARE * len(values))


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return True


LOWER_IS_BETTER = config_pb2.MetricDirection.LOWER_IS_BETTER
HIGHER_IS_BETTER = config_pb2.MetricDirection.HIGHER_IS_BETTER


def validate(
    sliced: tuple[SliceKey, Metrics],
    config: config_pb2.EvalConfig,
    intervals: EvaluationIntervals,
    settings: VerdictSettings,
) -> validation_result_pb2.ValidationResult:
    """Returns TFMA's validation of a slice, corrected by the confidence intervals.

    These rules apply:

    - The difference from the model in service fails if its whole interval is worse than the
      tolerance allows.
    - If ties keep the model in service, the deciding metric fails as TFMA's values decide.
    - A metric in `others` fails on the whole split if its whole shared interval is worse.
    - A bound that has to be met with confidence fails if an end of the interval violates it.
    - An undefined metric fails on the whole split, but not on a slice.
    - On a slice with too few examples, the difference does not fail.
    """
    key, metrics = sliced
    result = metrics_validator.validate_metrics(sliced, config)
    by_metric = intervals.slices.get(key_name(key), {})
    failures = [
        failure
        for slice_result in result.metric_validations_per_slice
        for failure in slice_result.failures
        if not _is_ignored(
            failure, by_metric.get(failure.metric_key.name, MetricIntervals()), bool(key), settings
        )
    ]
    failures += [] if key else _significant_losses(metrics, by_metric, settings)
    # If there are no intervals of a metric, the result of TFMA's comparison of values remains.
    certain = frozenset((*settings.lower, *settings.upper)) - set(intervals.without)
    failed = {failure.metric_key.name for failure in failures if not failure.metric_key.is_diff}
    for metric_key, value in metrics.items():
        metric_intervals = by_metric.get(metric_key.name)
        bounds = bounds_of(metric_key.name, key, config)
        if (
            metric_intervals is None
            or bounds is None
            or metric_key.is_diff
            or metric_key.name in failed
        ):
            continue
        if metric_key.model_name != BASELINE:
            is_certain = metric_key.name in certain
            if message := _interval_failure(
                metric_intervals, bounds, settings, metric_key.name, is_certain, bool(key)
            ):
                failures.append(_failure(metric_key, value, bounds, message))
    del result.metric_validations_per_slice[:]
    result.validation_ok = not failures
    if failures:
        slice_result = result.metric_validations_per_slice.add()
        slice_result.slice_key.CopyFrom(slicer_lib.serialize_slice_key(key))
        slice_result.failures.extend(failures)
    return result


def _is_ignored(
    failure: Any, intervals: MetricIntervals, is_slice: bool, settings: VerdictSettings
) -> bool:
    if is_slice and not intervals.defined:
        return True
    if is_slice and failure.metric_key.is_diff and intervals.is_unmeasurable:
        return True
    if not failure.metric_key.is_diff or not intervals.defined:
        return False
    value = failure.metric_value.double_value.value
    if intervals.difference is None or not math.isfinite(value):
        return is_slice and not math.isfinite(value)
    if settings.keeps_ties and failure.metric_key.name == settings.deciding and not is_slice:
        return False
    change = failure.metric_threshold.change_threshold
    if change.direction == LOWER_IS_BETTER:
        return bool(intervals.difference.low <= change.absolute.value)
    return bool(intervals.difference.high >= change.absolute.value)


def _significant_losses(
    metrics: Metrics, intervals: Mapping[str, MetricIntervals], settings: VerdictSettings
) -> list[Any]:
    """Returns the failures of metrics without thresholds that are significantly worse than in
    service.
    """
    failures = []
    for key, value in metrics.items():
        higher_is_better = settings.others.get(key.name)
        interval = intervals.get(key.name, MetricIntervals()).shared
        if higher_is_better is None or interval is None or not key.is_diff:
            continue
        if interval.high < 0 if higher_is_better else interval.low > 0:
            failure = validation_result_pb2.ValidationFailure(
                message="the metric is significantly worse than in service"
            )
            failure.metric_key.CopyFrom(key.to_proto())
            failure.metric_value.double_value.value = float(value)
            failure.metric_threshold.change_threshold.direction = (
                HIGHER_IS_BETTER if higher_is_better else LOWER_IS_BETTER
            )
            failures.append(failure)
    return failures


def _interval_failure(
    intervals: MetricIntervals,
    bounds: config_pb2.GenericValueThreshold,
    settings: VerdictSettings,
    name: str,
    is_certain: bool,
    is_slice: bool,
) -> str:
    """Returns the reason why a metric fails that passes TFMA's validation, or an empty string."""
    if not intervals.defined:
        return "" if is_slice else "the metric is undefined"
    if not is_certain:
        return ""
    if intervals.interval is None:
        return "the metric has no interval: there are too few examples"
    if name in settings.lower and intervals.interval.low < bounds.lower_bound.value:
        return "the lower end of the interval is below the threshold"
    if name in settings.upper and intervals.interval.high > bounds.upper_bound.value:
        return "the upper end of the interval is above the threshold"
    return ""


def _failure(
    key: metric_types.MetricKey, value: Any, bounds: config_pb2.GenericValueThreshold, message: str
) -> validation_result_pb2.ValidationFailure:
    failure = validation_result_pb2.ValidationFailure(message=message)
    failure.metric_key.CopyFrom(key.to_proto())
    failure.metric_value.double_value.value = float(value)
    failure.metric_threshold.value_threshold.CopyFrom(bounds)
    return failure


def bounds_of(
    name: str, key: SliceKey, config: config_pb2.EvalConfig
) -> config_pb2.GenericValueThreshold | None:
    """Returns the bounds of a metric in a slice, or None if there are no bounds."""
    for metric in (metric for spec in config.metrics_specs for metric in spec.metrics):
        if metric_name(metric) == name:
            for slice_threshold in metric.per_slice_thresholds:
                specs = (
                    slicer_lib.SingleSliceSpec(spec=spec) for spec in slice_threshold.slicing_specs
                )
                if any(spec.is_slice_applicable(key) for spec in specs):
                    return slice_threshold.threshold.value_threshold
    return None
