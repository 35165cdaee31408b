"""TFMA's validation of a slice, read with what chance may have done to its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2, validation_result_pb2
from tensorflow_model_analysis.slicer import slicer_lib

from components.evaluator.batched.computations import Metrics
from components.evaluator.batched.intervals import name_of
from components.evaluator.batched.slices import SliceKey
from components.evaluator.eval_config import metric_name
from components.evaluator.noise import MetricNoise, Noise
from components.evaluator.slices import BASELINE
from components.evaluator.verdict_settings import VerdictSettings

LESS_IS_BETTER = config_pb2.MetricDirection.LOWER_IS_BETTER
MORE_IS_BETTER = config_pb2.MetricDirection.HIGHER_IS_BETTER


def validate(
    sliced: tuple[SliceKey, Metrics],
    config: config_pb2.EvalConfig,
    noise: Noise,
    settings: VerdictSettings,
) -> validation_result_pb2.ValidationResult:
    """What TFMA says against a slice, less what may be chance, and what the intervals say.

    A difference to the model in service fails where all of its interval is worse than the tolerance
    allows, and in the deciding metric also within noise where ties are kept. So does that of one of
    the `others` on the whole split, where all of its shared interval is worse. A bound that is to
    be kept with confidence fails where the interval's end is beyond it. A metric that is undefined
    fails on the whole split, and says nothing on a slice; nor does the difference on a slice that
    is too small to measure it.

    Args:
      sliced: the key of the slice, and its metrics.
      config: TFMA's.
      noise: what is known of chance.
      settings: what the config says of it.
    """
    key, metrics = sliced
    result = metrics_validator.validate_metrics(sliced, config)
    known = noise.slices.get(name_of(key), {})
    failures = [
        failure
        for of_slice in result.metric_validations_per_slice
        for failure in of_slice.failures
        if not _is_excused(
            failure, known.get(failure.metric_key.name, MetricNoise()), bool(key), settings
        )
    ]
    failures += [] if key else _others_against(metrics, known, settings)
    # Where a metric cannot have an interval its value is held, which TFMA has done.
    sure = frozenset((*settings.lower, *settings.upper)) - set(noise.without)
    failed = {failure.metric_key.name for failure in failures if not failure.metric_key.is_diff}
    for metric_key, value in metrics.items():
        found = known.get(metric_key.name)
        bounds = bounds_of(metric_key.name, key, config)
        if found is None or bounds is None or metric_key.is_diff or metric_key.name in failed:
            continue
        if metric_key.model_name != BASELINE:
            is_sure = metric_key.name in sure
            if message := _against(found, bounds, settings, metric_key.name, is_sure, bool(key)):
                failures.append(_failure(metric_key, value, bounds, message))
    del result.metric_validations_per_slice[:]
    result.validation_ok = not failures
    if failures:
        of_slice = result.metric_validations_per_slice.add()
        of_slice.slice_key.CopyFrom(slicer_lib.serialize_slice_key(key))
        of_slice.failures.extend(failures)
    return result


def _is_excused(
    failure: Any, noise: MetricNoise, is_slice: bool, settings: VerdictSettings
) -> bool:
    if is_slice and not noise.defined:
        return True
    if is_slice and failure.metric_key.is_diff and noise.is_unmeasurable:
        return True
    if not failure.metric_key.is_diff or not noise.defined:
        return False
    value = failure.metric_value.double_value.value
    if noise.difference is None or not math.isfinite(value):
        return is_slice and not math.isfinite(value)
    if settings.keeps_ties and failure.metric_key.name == settings.deciding and not is_slice:
        return False
    change = failure.metric_threshold.change_threshold
    if change.direction == LESS_IS_BETTER:
        return bool(noise.difference.low <= change.absolute.value)
    return bool(noise.difference.high >= change.absolute.value)


def _others_against(
    metrics: Metrics, known: Mapping[str, MetricNoise], settings: VerdictSettings
) -> list[Any]:
    """What metrics without thresholds say against a model: those that are surely worse."""
    failures = []
    for key, value in metrics.items():
        higher_is_better = settings.others.get(key.name)
        interval = known.get(key.name, MetricNoise()).shared
        if higher_is_better is None or interval is None or not key.is_diff:
            continue
        if interval.high < 0 if higher_is_better else interval.low > 0:
            failure = validation_result_pb2.ValidationFailure(
                message="it is worse than the model in service's beyond noise"
            )
            failure.metric_key.CopyFrom(key.to_proto())
            failure.metric_value.double_value.value = float(value)
            failure.metric_threshold.change_threshold.direction = (
                MORE_IS_BETTER if higher_is_better else LESS_IS_BETTER
            )
            failures.append(failure)
    return failures


def _against(
    noise: MetricNoise,
    bounds: config_pb2.GenericValueThreshold,
    settings: VerdictSettings,
    name: str,
    is_sure: bool,
    is_slice: bool,
) -> str:
    """What speaks against a metric that TFMA knows nothing of; empty if nothing does."""
    if not noise.defined:
        return "" if is_slice else "the metric is undefined"
    if not is_sure:
        return ""
    if noise.interval is None:
        return "there are too few examples for an interval"
    if name in settings.lower and noise.interval.low < bounds.lower_bound.value:
        return "the lower end of its interval is below the threshold"
    if name in settings.upper and noise.interval.high > bounds.upper_bound.value:
        return "the upper end of its interval is above the threshold"
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
    """The bounds of a metric in a slice; None where it has none."""
    for metric in (metric for spec in config.metrics_specs for metric in spec.metrics):
        if metric_name(metric) == name:
            for held in metric.per_slice_thresholds:
                specs = (slicer_lib.SingleSliceSpec(spec=spec) for spec in held.slicing_specs)
                if any(spec.is_slice_applicable(key) for spec in specs):
                    return held.threshold.value_threshold
    return None
