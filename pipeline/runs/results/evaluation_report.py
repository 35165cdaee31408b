"""What the Evaluator measured and decided: each metric, its bounds, and the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow_model_analysis as tfma

from components.evaluator.constant_prediction import ConstantPrediction
from components.evaluator.executor import read_constant_prediction
from components.evaluator.noise import Noise, read_noise
from components.evaluator.slices import BASELINE, CANDIDATE, metrics_by_slice, slice_name
from pipeline.config.sections.evaluate import Criteria
from pipeline.graph.evaluation import constant_metric
from pipeline.runs.results.run_results import EvaluationReport, MetricResult
from pipeline.runs.results.verdict_words import (
    Measured,
    describe_failure,
    describe_needs,
    describe_within_noise,
)
from trainer_module.errors import counted

MOST_NAMED = 3
"""Slices in a note."""
_PERFECT = 0.995
"""AUC, accuracy or the share of a loss explained, from which on a metric is nearly perfect."""
_MISTAKES_LEFT = 0.02
"""Share of a constant's mistakes that a nearly perfect classifier makes at most."""
_FEWEST_ROWS = 50
"""Of fewer, a good model makes no mistake by chance."""


def read_evaluation(uri: str, criteria: Criteria, blessed: bool) -> EvaluationReport:
    """Reads an evaluation artifact.

    Args:
      uri: its folder.
      criteria: of the run, for the order of the metrics and their thresholds.
      blessed: whether TFX blessed the model.
    """
    by_slice, noise = metrics_by_slice(uri), read_noise(uri)
    _clear_undefined(by_slice, noise)
    failed = _failed_metrics(uri)
    reference = read_constant_prediction(uri)
    constant = reference if constant_metric(criteria) else None
    has_baseline = BASELINE in by_slice.get("", {})
    names = _reported(criteria, by_slice.get("", {}).get(CANDIDATE, {}))
    measured = {name: _measured(name, "", by_slice, noise, criteria) for name in names}
    results = tuple(
        MetricResult(
            name=name,
            value=one.value,
            in_service=one.in_service,
            needs=describe_needs(criteria, name, has_baseline, constant, noise),
            ok=not any(name in of_slice for of_slice in failed.values()),
            interval=one.noise.interval,
            difference=one.noise.difference,
        )
        for name, one in measured.items()
    )
    reason = _kept(measured, criteria, noise, constant)
    if not blessed:
        failures = [
            describe_failure(_measured(name, where, by_slice, noise, criteria), criteria, constant)
            for name in names
            for where in sorted(failed)
            if name in failed[where]
        ]
        failures += _unmeasured_slices(uri, noise)
        reason = "; ".join(failures) or "TFMA could not validate the metrics; see the log"
    slices = {name: models.get(CANDIDATE, {}) for name, models in by_slice.items() if name}
    notes = [*noise.notes, *_notes(criteria, noise, has_baseline)]
    perfect = next((r for r in results if is_nearly_perfect(r, reference)), None)
    return EvaluationReport(blessed, reason, results, slices, noise.confidence, notes, perfect)


def is_nearly_perfect(result: MetricResult, constant: ConstantPrediction | None) -> bool:
    """Whether a metric is better than most data allows; False where the rows are few.

    Args:
      result: of the whole eval split.
      constant: of the metric that decides, which tells how hard the data is.
    """
    if constant is None or constant.examples < _FEWEST_ROWS:
        return False
    if result.name in ("auc", "r2"):
        return result.value >= _PERFECT
    if result.name != constant.metric:
        return False
    if result.name == "accuracy":
        allowed = min(1 - _PERFECT, _MISTAKES_LEFT * (1 - constant.value))
        return 1 - result.value <= allowed
    # A deviance is 0 at best, as squares are.
    explained = result.name in ("mse", "poisson_deviance")
    return explained and result.value <= (1 - _PERFECT) * constant.value


def _reported(criteria: Criteria, measured: Mapping[str, float]) -> list[str]:
    """The metrics to tell of: of those of TFMA's config, one without a threshold may be a plot."""
    evaluate = criteria.evaluate
    plots = {n for n in evaluate.configured if n not in measured and n not in evaluate.thresholds}
    return [name for name in criteria.names if name not in plots]


def _measured(
    name: str,
    where: str,
    by_slice: Mapping[str, Mapping[str, Mapping[str, float]]],
    noise: Noise,
    criteria: Criteria,
) -> Measured:
    models = by_slice.get(where, {})
    value = models.get(CANDIDATE, {}).get(name, math.nan)
    in_service = models.get(BASELINE, {}).get(name)
    # One without quantiles has no coverage, which no threshold compares.
    is_compared = criteria.metric(name).is_compared
    if in_service is not None and not math.isfinite(in_service) and not is_compared:
        in_service = None
    return Measured(name, where, value, in_service, noise.of(name, where), noise.confidence)


def _clear_undefined(by_slice: dict[str, dict[str, dict[str, float]]], noise: Noise) -> None:
    """Makes NaN of what TFMA has a number for where there is none."""
    for name, metrics in noise.slices.items():
        for metric, found in metrics.items():
            values = by_slice.get(name, {}).get(CANDIDATE, {})
            if not found.defined and metric in values:
                values[metric] = math.nan


def _failed_metrics(uri: str) -> dict[str, set[str]]:
    """The metrics that something was found against, by slice."""
    result = tfma.load_validation_result(uri)
    return {
        slice_name(of_slice.slice_key.single_slice_keys): {
            failure.metric_key.name for failure in of_slice.failures
        }
        for of_slice in result.metric_validations_per_slice
    }


def _unmeasured_slices(uri: str, noise: Noise) -> list[str]:
    """Which slices have thresholds and no metrics, as the data has none of them or too many."""
    missing = tfma.load_validation_result(uri).missing_slices
    kinds = ", ".join(sorted(" and ".join(spec.feature_keys) for spec in missing))
    why = f" ({'; '.join(noise.notes)})" if noise.notes else ""
    return [f"thresholds hold slices by {kinds}, of which none was measured{why}"] * bool(kinds)


def _kept(
    measured: Mapping[str, Measured],
    criteria: Criteria,
    noise: Noise,
    constant: ConstantPrediction | None,
) -> str:
    """Why a model is blessed."""
    kept = "every threshold is kept" if criteria.evaluate.thresholds else "no thresholds are set"
    if constant is not None:
        kept = f"{constant.metric} is better than a constant prediction's"
        if constant.is_beaten_by_luck:
            kept += (
                f" (on {counted(constant.examples, 'example')} luck alone often is as well: hold "
                "more rows back by data.splits)"
            )
    if all(one.in_service is None for one in measured.values()):
        if noise.not_compared:
            return (
                f"{kept}, and it was not compared with the model in service, which "
                f"{noise.not_compared}"
            )
        return f"{kept}, and no model in service was compared with"
    held = criteria.thresholds
    within = [describe_within_noise(measured[name], criteria) for name in measured if name in held]
    said = "; ".join(filter(None, within))
    compared = "it is not worse than the model in service"
    return f"{kept}, and {compared}" + (f" beyond noise: {said}" if said else "")


def _notes(criteria: Criteria, noise: Noise, has_baseline: bool) -> list[str]:
    """What cannot be known."""
    notes = []
    names = criteria.names
    for name in names:
        slices = [where for where in noise.slices if where and not noise.of(name, where).defined]
        if slices:
            named = ", ".join(slices[:MOST_NAMED])
            more = f" and {len(slices) - MOST_NAMED} more" if len(slices) > MOST_NAMED else ""
            notes.append(f"{name} is undefined on {named}{more}, where no threshold holds it")
    thresholds = criteria.thresholds
    held = [
        name
        for name in names
        if (threshold := thresholds.get(name)) is not None
        and (threshold.is_least_sure or threshold.is_most_sure or has_baseline)
    ]
    unknown = held if noise.confidence is None else [name for name in held if name in noise.without]
    if unknown and criteria.evaluate.confidence is not None:
        notes.append(
            f"there are no intervals of {', '.join(unknown)}, which TFMA computes by itself: "
            "thresholds hold the values as they are"
        )
    return notes
