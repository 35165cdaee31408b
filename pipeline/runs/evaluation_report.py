"""Reads the report of an evaluation: metrics, the reason of the verdict, and confusions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow_model_analysis as tfma
from tfx.utils import path_utils

from components.evaluator.constant_prediction import ConstantPrediction
from components.evaluator.executor import read_constant_prediction
from components.evaluator.intervals import (
    EvaluationIntervals,
    Interval,
    MetricIntervals,
    read_intervals,
)
from components.evaluator.naive_prediction import read_naive_prediction
from components.evaluator.slices import BASELINE, CANDIDATE, metrics_by_slice, slice_name
from pipeline.config.sections.evaluate import Criteria, EvaluateSettings, Threshold
from pipeline.graph.evaluation import constant_metric
from pipeline.records.summary import EvaluationReport, MetricSummary
from trainer_module.errors import DataError, counted
from trainer_module.export.interface import read_interface

MAX_NAMED_SLICES = 3
"""The maximum number of slices that a note names."""
_PERFECT = 0.995
"""The AUC, accuracy or explained share of a loss from which a metric is nearly perfect."""
_MAX_MISTAKES = 0.02
"""The maximum mistakes of a nearly perfect classifier, as a share of the mistakes of a constant
prediction.
"""
_MIN_ROWS = 50
"""The minimum number of rows for a warning. On fewer rows, a good model may make no mistakes."""
MAX_CONFUSIONS = 3


def read_evaluation(uri: str, criteria: Criteria, blessed: bool) -> EvaluationReport:
    """Returns the report of an evaluation artifact.

    Args:
      criteria: the criteria of the run, for the order of the metrics and their thresholds.
      blessed: whether TFX blessed the model.
    """
    by_slice, intervals = metrics_by_slice(uri), read_intervals(uri)
    _clear_undefined(by_slice, intervals)
    failed = _failed_metrics(uri)
    reference = read_constant_prediction(uri)
    constant = reference if constant_metric(criteria) else None
    has_baseline = BASELINE in by_slice.get("", {})
    names = _reported(criteria, by_slice.get("", {}).get(CANDIDATE, {}))
    measured = {name: _measured(name, "", by_slice, intervals, criteria) for name in names}
    metrics = {
        name: MetricSummary(
            value=one.value,
            in_service=one.in_service,
            needs=describe_needs(criteria, name, has_baseline, constant, intervals),
            ok=not any(name in of_slice for of_slice in failed.values()),
            interval=_ends(one.intervals.interval),
            difference=_ends(one.intervals.difference),
        )
        for name, one in measured.items()
    }
    reason = _blessing_reason(measured, criteria, intervals, constant)
    if not blessed:
        failures = [
            describe_failure(
                _measured(name, where, by_slice, intervals, criteria), criteria, constant
            )
            for name in names
            for where in sorted(failed)
            if name in failed[where]
        ]
        failures += _unmeasured_slices(uri, intervals)
        reason = "; ".join(failures) or "TFMA could not validate the metrics; see the log"
    slices = {name: models.get(CANDIDATE, {}) for name, models in by_slice.items() if name}
    notes = [*intervals.notes, *_notes(criteria, intervals, has_baseline)]
    if (naive := read_naive_prediction(uri)) is not None:
        notes += filter(None, [naive.compare({name: one.value for name, one in measured.items()})])
    perfect = (name for name in names if is_nearly_perfect(name, measured[name].value, reference))
    return EvaluationReport(blessed, reason, metrics, slices, notes, next(perfect, None))


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else interval.ends


def is_nearly_perfect(name: str, value: float, constant: ConstantPrediction | None) -> bool:
    """Returns whether a metric is suspiciously good; False if there are few rows.

    Args:
      value: the value on the whole eval split.
      constant: the constant prediction, whose metric shows how hard the task is.
    """
    if constant is None or constant.examples < _MIN_ROWS:
        return False
    if name in ("auc", "r2"):
        return value >= _PERFECT
    if name != constant.metric:
        return False
    if name == "accuracy":
        allowed = min(1 - _PERFECT, _MAX_MISTAKES * (1 - constant.value))
        return 1 - value <= allowed
    # The best value of these metrics is 0.
    return name in ("mse", "poisson_deviance") and value <= (1 - _PERFECT) * constant.value


def _reported(criteria: Criteria, measured: Mapping[str, float]) -> list[str]:
    """Returns the metrics to report. Plots, which the config may list as mappings, are omitted."""
    evaluate = criteria.evaluate
    plots = {n for n in evaluate.configured if n not in measured and n not in evaluate.thresholds}
    return [name for name in criteria.names if name not in plots]


def _measured(
    name: str,
    where: str,
    by_slice: Mapping[str, Mapping[str, Mapping[str, float]]],
    intervals: EvaluationIntervals,
    criteria: Criteria,
) -> Measured:
    models = by_slice.get(where, {})
    value = models.get(CANDIDATE, {}).get(name, math.nan)
    in_service = models.get(BASELINE, {}).get(name)
    # The coverage of a model without quantiles is not a number; thresholds do not compare it.
    is_compared = criteria.metric(name).is_compared
    if in_service is not None and not math.isfinite(in_service) and not is_compared:
        in_service = None
    return Measured(
        name, where, value, in_service, intervals.find(name, where), intervals.confidence
    )


def _clear_undefined(
    by_slice: dict[str, dict[str, dict[str, float]]], intervals: EvaluationIntervals
) -> None:
    """Replaces TFMA's numbers by NaN where a metric is undefined."""
    for name, metrics in intervals.slices.items():
        for metric, found in metrics.items():
            values = by_slice.get(name, {}).get(CANDIDATE, {})
            if not found.defined and metric in values:
                values[metric] = math.nan


def _failed_metrics(uri: str) -> dict[str, set[str]]:
    """Returns the metrics that failed, by slice."""
    result = tfma.load_validation_result(uri)
    return {
        slice_name(of_slice.slice_key.single_slice_keys): {
            failure.metric_key.name for failure in of_slice.failures
        }
        for of_slice in result.metric_validations_per_slice
    }


def _unmeasured_slices(uri: str, intervals: EvaluationIntervals) -> list[str]:
    """Returns a sentence about slices that have thresholds but no metrics.

    The list is empty if there are no such slices.
    """
    missing = tfma.load_validation_result(uri).missing_slices
    kinds = ", ".join(sorted(" and ".join(spec.feature_keys) for spec in missing))
    remark = f" ({'; '.join(intervals.notes)})" if intervals.notes else ""
    return [
        f"there are thresholds for slices by {kinds}, but no slices by {kinds} were measured"
        f"{remark}"
    ] * bool(kinds)


def _blessing_reason(
    measured: Mapping[str, Measured],
    criteria: Criteria,
    intervals: EvaluationIntervals,
    constant: ConstantPrediction | None,
) -> str:
    """Returns the reason why a model is blessed."""
    kept = "every threshold is met" if criteria.evaluate.thresholds else "no thresholds are set"
    if constant is not None:
        kept = f"{constant.metric} is better than a constant prediction's"
        if constant.is_inconclusive:
            kept += (
                f" (on {counted(constant.examples, 'example')} this may be luck: use more rows "
                "for eval in data.splits)"
            )
    if all(one.in_service is None for one in measured.values()):
        if intervals.not_compared:
            return (
                f"{kept}, and there is no comparison with the model in service, which "
                f"{intervals.not_compared}"
            )
        return f"{kept}, and there is no model in service to compare with"
    thresholds = criteria.thresholds
    described = [describe_tie(measured[name], criteria) for name in measured if name in thresholds]
    ties = "; ".join(filter(None, described))
    if ties:
        return f"{kept}, and the model is not significantly worse than in service: {ties}"
    return f"{kept}, and the model is not worse than the model in service"


def _notes(criteria: Criteria, intervals: EvaluationIntervals, has_baseline: bool) -> list[str]:
    """Returns notes on undefined metrics and on metrics without intervals."""
    notes = []
    names = criteria.names
    for name in names:
        slices = [
            where for where in intervals.slices if where and not intervals.find(name, where).defined
        ]
        if slices:
            named = ", ".join(slices[:MAX_NAMED_SLICES])
            more = (
                f" and {len(slices) - MAX_NAMED_SLICES} more"
                if len(slices) > MAX_NAMED_SLICES
                else ""
            )
            notes.append(f"{name} is undefined on {named}{more}, and has no threshold there")
    thresholds = criteria.thresholds
    limited = [
        name
        for name in names
        if (threshold := thresholds.get(name)) is not None
        and (threshold.is_min_confident or threshold.is_max_confident or has_baseline)
    ]
    unknown = (
        limited
        if intervals.confidence is None
        else [name for name in limited if name in intervals.without]
    )
    if unknown and criteria.evaluate.confidence is not None:
        notes.append(
            f"there are no confidence intervals for {', '.join(unknown)}, as TFMA computes only "
            "values: thresholds apply to the values"
        )
    return notes


@dataclass(frozen=True)
class Measured:
    """The value of a metric on the whole eval split, or on a slice."""

    name: str
    where: str
    """The slice, or an empty string for the whole eval split."""
    value: float
    in_service: float | None
    intervals: MetricIntervals
    confidence: float | None

    @property
    def sentence(self) -> str:
        """The value of the metric in a sentence."""
        of_slice = f" of {self.where}" if self.where else ""
        return f"{self.name}{of_slice} is {self.value:.4g}"

    def show(self, interval: Interval, sign: str = "") -> str:
        """Returns an interval as text, with its confidence level."""
        level = f"{100 * (self.confidence or 0):.4g} %"
        return f"{level}: {interval.low:{sign}.3g} to {interval.high:{sign}.3g}"


def describe_needs(
    criteria: Criteria,
    name: str,
    has_baseline: bool,
    constant: ConstantPrediction | None,
    intervals: EvaluationIntervals,
) -> str:
    """Returns the requirements of a metric as text, or an empty string."""
    needs = []
    if constant is not None and constant.metric == name:
        needs.append(f"better than a constant prediction's {constant.value:.4g}")
    threshold = criteria.thresholds.get(name)
    if threshold is None:
        if has_baseline and name in criteria.others and intervals.find(name).shared:
            needs.append("not significantly worse than in service")
        return ", ".join(needs)
    sure = {True: " for certain", False: ""}
    if threshold.min_value is not None:
        needs.append(f"at least {threshold.min_value:g}{sure[threshold.is_min_confident]}")
    if threshold.max_value is not None:
        needs.append(f"at most {threshold.max_value:g}{sure[threshold.is_max_confident]}")
    if has_baseline and criteria.metric(name).is_compared:
        tolerance = f" by more than {threshold.tolerance:g}" if threshold.tolerance else ""
        has_interval = intervals.confidence is not None and name not in intervals.without
        ties_fail = intervals.keeps_ties and name == criteria.deciding.name
        adverb = "significantly " if has_interval and not ties_fail else ""
        needs.append(f"not {adverb}worse than in service{tolerance}")
    return ", ".join(needs) + (", on each slice" if threshold.slices and needs else "")


def describe_tie(measured: Measured, criteria: Criteria) -> str:
    """Returns the loss of a metric that is worse, but not significantly worse.

    The string is empty if the metric is not worse.
    """
    difference, in_service = measured.intervals.difference, measured.in_service
    if difference is None or in_service is None:
        return ""
    is_better = criteria.metric(measured.name).higher_is_better
    loss = (in_service - measured.value) * (1 if is_better else -1)
    tolerance = _threshold(criteria, measured.name).tolerance
    if not loss > tolerance:
        return ""
    return (
        f"{measured.name} {measured.value:.4g}, not significantly worse than {in_service:.4g} "
        f"(difference, {measured.show(difference, '+')})"
    )


def describe_failure(
    measured: Measured, criteria: Criteria, constant: ConstantPrediction | None
) -> str:
    """Returns the reason why a metric fails."""
    sentence, value = measured.sentence, measured.value
    if not measured.intervals.defined or not math.isfinite(value):
        return f"{sentence}, not a number: {_why_undefined(measured)}"
    threshold = _threshold(criteria, measured.name)
    if beyond := _beyond_bounds(measured, threshold):
        return f"{sentence}, {beyond}"
    compared = constant if constant is not None and constant.metric == measured.name else None
    if compared is not None and not compared.is_beaten_by(value) and not measured.where:
        return (
            f"{sentence}, and a constant prediction has {compared.value:.4g}; on "
            f"{compared.examples:,} examples, a model needs {compared.needed:.4g} to be better "
            "than luck. Check whether the features predict the label, or set evaluate.thresholds"
        )
    key = f"evaluate.thresholds.{measured.name}.tolerance"
    worse = f"worse than the {measured.in_service:.4g} of the model in service"
    if measured.intervals.shared is not None:
        return (
            f"{sentence}, significantly {worse} ({measured.show(measured.intervals.shared, '+')}), "
            f"even if {criteria.deciding.name} is better. evaluate.thresholds sets which metrics "
            "decide"
        )
    difference = measured.intervals.difference
    if difference is None:
        return f"{sentence}, {worse} (a larger {key} allows a larger difference)"
    shown, tolerance = measured.show(difference, "+"), threshold.tolerance
    is_better = criteria.metric(measured.name).higher_is_better
    if difference.high >= -tolerance if is_better else difference.low <= tolerance:
        return (
            f"{sentence}, not significantly {worse} ({shown}). The model in service is "
            f"kept{_why_kept(criteria.evaluate)}. `evaluate: {{ties: newest}}` pushes the new "
            f"model; a larger {key} allows a larger difference"
        )
    return f"{sentence}, significantly {worse} ({shown}). A larger {key} allows a larger difference"


def _why_kept(evaluate: EvaluateSettings) -> str:
    """Returns the reason why a tie keeps the model in service."""
    if evaluate.ties is not None:
        return ", as evaluate.ties is set"
    return ", because both models were trained on the same data"


def _why_undefined(measured: Measured) -> str:
    where = f"the examples of {measured.where}" if measured.where else "the eval split"
    return (
        f"it is undefined on {where}, such as an AUC with one class, or a precision without "
        "positive predictions. Check the labels and the predictions there"
    )


def _beyond_bounds(measured: Measured, threshold: Threshold) -> str:
    """Returns the bound that a metric breaks, or an empty string if there is none."""
    value, interval = measured.value, measured.intervals.interval
    if threshold.min_value is not None and value < threshold.min_value:
        return f"below the threshold of {threshold.min_value:g}"
    if threshold.max_value is not None and value > threshold.max_value:
        return f"above the threshold of {threshold.max_value:g}"
    bounds = [
        (threshold.is_min_confident, threshold.min_value, "below"),
        (threshold.is_max_confident, threshold.max_value, "above"),
    ]
    for is_sure, bound, side in bounds:
        if not is_sure or bound is None or measured.confidence is None:
            continue
        if interval is None:
            return f"and there are too few examples to be sure of {bound:g}"
        end = interval.low if side == "below" else interval.high
        if end < bound if side == "below" else end > bound:
            return f"and may be {side} the threshold of {bound:g} ({measured.show(interval)})"
    return ""


def _threshold(criteria: Criteria, name: str) -> Threshold:
    # A metric that only has to beat a constant prediction has no threshold.
    return criteria.thresholds.get(name, Threshold())


@dataclass(frozen=True)
class Confusion:
    """The confusion of a class with another class."""

    rows: float
    """The number of confused rows, or the sum of their weights."""
    total: float
    """The number of all rows of the true class, or the sum of their weights."""
    true: int
    """The number of the true class."""
    predicted: int
    """The number of the predicted class."""


def read_mistakes(uri: str) -> list[Confusion]:
    """Returns the confusions on the whole eval split, most frequent first.

    Without a confusion matrix, there are no confusions.

    Args:
      uri: the folder that TFMA wrote to.
    """
    counts = {(true, predicted): count for true, predicted, count in _cells(uri)}
    totals: dict[int, float] = {}
    for (true, _), count in counts.items():
        totals[true] = totals.get(true, 0.0) + count
    mistakes = (
        Confusion(count, totals[true], true, predicted)
        for (true, predicted), count in counts.items()
        if true != predicted and count
    )
    return sorted(mistakes, key=lambda pair: (-pair.rows, pair.true, pair.predicted))


def _cells(uri: str) -> Iterator[tuple[int, int, float]]:
    """Yields each cell of the new model's matrix: true class, predicted class, weighted count."""
    for plots in tfma.load_plots(uri):
        if plots.slice_key.single_slice_keys:
            continue
        for item in plots.plot_keys_and_values:
            if item.key.model_name in ("", CANDIDATE):
                for matrix in item.value.multi_class_confusion_matrix_at_thresholds.matrices:
                    for cell in matrix.entries:
                        yield (
                            cell.actual_class_id,
                            cell.predicted_class_id,
                            cell.num_weighted_examples,
                        )


def describe_mistakes(uri: str, model: str | None) -> str:
    """Returns a sentence about the most frequent confusions of classes, or an empty string.

    Args:
      uri: the folder that TFMA wrote to.
      model: the URI of the model's artifact, which has the names of the classes.
    """
    mistakes = read_mistakes(uri)
    if not mistakes:
        return ""
    classes = _classes(model)

    def name(number: int) -> str:
        if not classes:
            return f"class {number}"
        return classes[number] if 0 <= number < len(classes) else "a class that was not in training"

    pairs = [
        f"{name(pair.true)} as {name(pair.predicted)} ({pair.rows:,.4g} of {pair.total:,.4g})"
        for pair in mistakes[:MAX_CONFUSIONS]
    ]
    return f"most frequent confusions: {', '.join(pairs)}"


def _classes(model: str | None) -> Sequence[str]:
    """Returns the names of the classes, or no names for a model that other code exported."""
    if model is None:
        return ()
    try:
        return read_interface(Path(path_utils.serving_model_path(model))).classes
    except DataError:
        return ()
