"""What the Evaluator measured and decided, in words: each metric, its bounds, and the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tensorflow_model_analysis as tfma

from components.evaluator.constant_prediction import ConstantPrediction
from components.evaluator.executor import read_constant_prediction
from components.evaluator.slices import BASELINE, CANDIDATE, metrics_by_slice
from pipeline.config.metrics import find_metric
from pipeline.config.settings import PipelineConfig, Threshold
from pipeline.graph.evaluation import (
    constant_metric,
    effective_thresholds,
    metric_names,
)


@dataclass(frozen=True)
class MetricResult:
    """One metric of the whole eval split."""

    name: str
    value: float
    in_service: float | None
    """The same of the model to beat; None if there is none."""
    needs: str
    """What the thresholds ask, in words; empty if nothing."""
    ok: bool
    """Whether TFMA found nothing against it."""


@dataclass(frozen=True)
class EvaluationReport:
    """What was measured and decided."""

    blessed: bool
    reason: str
    metrics: tuple[MetricResult, ...]
    slices: dict[str, dict[str, float]]
    """Slice, such as `plan=gold`, to its metrics and its `example_count`."""


def read_evaluation(uri: str, config: PipelineConfig, blessed: bool) -> EvaluationReport:
    """Reads an evaluation artifact.

    Args:
      uri: its folder.
      config: of the run, for the order of the metrics and their thresholds.
      blessed: whether TFX blessed the model.
    """
    by_slice = metrics_by_slice(uri)
    values = by_slice.pop("", {})
    failed = _failed_metrics(uri)
    constant = read_constant_prediction(uri) if constant_metric(config) else None
    candidate, baseline = values.get(CANDIDATE, {}), values.get(BASELINE)
    results = tuple(
        MetricResult(
            name=name,
            value=candidate.get(name, math.nan),
            in_service=_in_service(baseline, name, config),
            needs=_needs(config, name, baseline is not None, constant),
            ok=name not in failed,
        )
        for name in metric_names(config.evaluate, config.target)
    )
    slices = {name: models.get(CANDIDATE, {}) for name, models in by_slice.items()}
    reason = _reason(results, config, blessed, constant)
    return EvaluationReport(blessed, reason, results, slices)


def _in_service(
    baseline: dict[str, float] | None, name: str, config: PipelineConfig
) -> float | None:
    """A metric of the model in service; None where it has none, such as one without quantiles."""
    value = (baseline or {}).get(name)
    is_there = value is not None and (math.isfinite(value) or _is_compared(name, config))
    return value if is_there else None


def _is_compared(name: str, config: PipelineConfig) -> bool:
    """Whether a threshold of a metric holds against the model in service too."""
    return find_metric(config.target, config.evaluate, name).is_compared


def _failed_metrics(uri: str) -> set[str]:
    result = tfma.load_validation_result(uri)
    return {
        failure.metric_key.name
        for of_slice in result.metric_validations_per_slice
        for failure in of_slice.failures
    }


def _needs(
    config: PipelineConfig, name: str, has_baseline: bool, constant: ConstantPrediction | None
) -> str:
    better = ""
    if constant is not None and constant.metric == name:
        better = f"better than {constant.value:.4g} of a constant"
    threshold = effective_thresholds(config.evaluate, config.target).get(name)
    if threshold is None:
        return better
    needs = [better] if better else []
    if threshold.min is not None:
        needs.append(f"at least {threshold.min:g}")
    if threshold.max is not None:
        needs.append(f"at most {threshold.max:g}")
    if has_baseline and _is_compared(name, config):
        slack = f" by more than {threshold.tolerance:g}" if threshold.tolerance else ""
        needs.append(f"not worse than in service{slack}")
    return ", ".join(needs)


def _reason(
    results: tuple[MetricResult, ...],
    config: PipelineConfig,
    blessed: bool,
    constant: ConstantPrediction | None,
) -> str:
    if not blessed:
        reasons = [_failure(result, config, constant) for result in results if not result.ok]
        return "; ".join(reasons) or "TFMA could not validate the metrics; see the log"
    with_baseline = any(result.in_service is not None for result in results)
    kept = "every threshold is kept" if config.evaluate.thresholds else "no thresholds are set"
    if constant is not None:
        kept = f"{constant.metric} is better than a constant prediction's"
    compared = "no model in service was compared with"
    if with_baseline:
        compared = "it is not worse than the model in service"
    return f"{kept}, and {compared}"


def _failure(
    result: MetricResult, config: PipelineConfig, constant: ConstantPrediction | None
) -> str:
    # Of what only has to be better than a constant prediction there is none.
    threshold = effective_thresholds(config.evaluate, config.target).get(result.name, Threshold())
    said = f"{result.name} is {result.value:.4g}"
    if not math.isfinite(result.value):
        return f"{said}, not a number"
    if threshold.min is not None and result.value < threshold.min:
        return f"{said}, below the threshold of {threshold.min:g}"
    if threshold.max is not None and result.value > threshold.max:
        return f"{said}, above the threshold of {threshold.max:g}"
    compared = constant if constant is not None and constant.metric == result.name else None
    if compared is not None and not compared.is_beaten_by(result.value):
        return (
            f"{said}, and always predicting the same has {compared.value:.4g}; on "
            f"{compared.examples:,} examples {compared.needed:.4g} is more than luck. Look at what "
            "the features say of the label, or set evaluate.thresholds to decide by yourself"
        )
    return (
        f"{said}, worse than {result.in_service:.4g} of the model in service "
        f"(evaluate.thresholds.{result.name}.tolerance allows for noise)"
    )
