"""What thresholds ask of a metric, and what became of that, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from components.evaluator.constant_prediction import ConstantPrediction
from components.evaluator.noise import Interval, MetricNoise, Noise
from pipeline.config.sections.evaluate import Criteria, EvaluateSettings, Threshold


@dataclass(frozen=True)
class Measured:
    """One metric on the whole eval split, or on a slice."""

    name: str
    where: str
    """The slice; empty for the whole split."""
    value: float
    in_service: float | None
    noise: MetricNoise
    confidence: float | None

    @property
    def said(self) -> str:
        """Which value it has."""
        of = f" of {self.where}" if self.where else ""
        return f"{self.name}{of} is {self.value:.4g}"

    def show(self, interval: Interval, sign: str = "") -> str:
        """An interval, with how sure it is."""
        sure = f"{100 * (self.confidence or 0):.4g} %"
        return f"{sure}: {interval.low:{sign}.3g} to {interval.high:{sign}.3g}"


def describe_needs(
    criteria: Criteria,
    name: str,
    has_baseline: bool,
    constant: ConstantPrediction | None,
    noise: Noise,
) -> str:
    """What a metric has to reach; empty if nothing."""
    needs = []
    if constant is not None and constant.metric == name:
        needs.append(f"better than {constant.value:.4g} of a constant")
    threshold = criteria.thresholds.get(name)
    if threshold is None:
        is_held = has_baseline and name in criteria.others and noise.of(name).shared
        return ", ".join([*needs, *(["not worse than in service beyond noise"] if is_held else [])])
    sure = {True: " for certain", False: ""}
    if threshold.least is not None:
        needs.append(f"at least {threshold.least:g}{sure[threshold.is_least_sure]}")
    if threshold.most is not None:
        needs.append(f"at most {threshold.most:g}{sure[threshold.is_most_sure]}")
    if has_baseline and criteria.metric(name).is_compared:
        slack = f" by more than {threshold.tolerance:g}" if threshold.tolerance else ""
        is_known = noise.confidence is not None and name not in noise.without
        is_known &= not (noise.keeps_ties and name == criteria.deciding.name)
        beyond = " beyond noise" if is_known else ""
        needs.append(f"not worse than in service{slack}{beyond}")
    return ", ".join(needs) + (", on each slice" if threshold.slices and needs else "")


def describe_within_noise(measured: Measured, criteria: Criteria) -> str:
    """By how much a metric is worse, which may be chance; empty if it is not worse."""
    difference, in_service = measured.noise.difference, measured.in_service
    if difference is None or in_service is None:
        return ""
    is_better = criteria.metric(measured.name).higher_is_better
    loss = (in_service - measured.value) * (1 if is_better else -1)
    tolerance = _threshold(criteria, measured.name).tolerance
    if not loss > tolerance:
        return ""
    return (
        f"{measured.name} {measured.value:.4g}, {loss:.2g} worse than {in_service:.4g}, within "
        f"noise ({measured.show(difference, '+')})"
    )


def describe_failure(
    measured: Measured, criteria: Criteria, constant: ConstantPrediction | None
) -> str:
    """Why a metric is not good enough."""
    said, value = measured.said, measured.value
    if not measured.noise.defined or not math.isfinite(value):
        return f"{said}, not a number: {_why_undefined(measured)}"
    threshold = _threshold(criteria, measured.name)
    if beyond := _beyond_bounds(measured, threshold):
        return f"{said}, {beyond}"
    compared = constant if constant is not None and constant.metric == measured.name else None
    if compared is not None and not compared.is_beaten_by(value) and not measured.where:
        return (
            f"{said}, and always predicting the same has {compared.value:.4g}; on "
            f"{compared.examples:,} examples {compared.needed:.4g} is more than luck. Look at what "
            "the features say of the label, or set evaluate.thresholds to decide by yourself"
        )
    key = f"evaluate.thresholds.{measured.name}.tolerance"
    worse = f"{said}, worse than {measured.in_service:.4g} of the model in service"
    if measured.noise.shared is not None:
        return (
            f"{worse} beyond noise ({measured.show(measured.noise.shared, '+')}), whatever "
            f"{criteria.deciding.name} says. evaluate.thresholds says which metrics decide"
        )
    difference = measured.noise.difference
    if difference is None:
        return f"{worse} ({key} allows for noise)"
    shown, tolerance = measured.show(difference, "+"), threshold.tolerance
    is_better = criteria.metric(measured.name).higher_is_better
    if difference.high >= -tolerance if is_better else difference.low <= tolerance:
        return (
            f"{worse} within noise ({shown}). That one stays{_why_kept(criteria.evaluate)}. "
            f"`evaluate: {{ties: newest}}` pushes the new one, {key} allows more"
        )
    return f"{worse} beyond noise ({shown}). {key} allows more"


def _why_kept(evaluate: EvaluateSettings) -> str:
    """Why the model in service stays where it is better by chance, after `that one stays`."""
    if evaluate.ties is not None:
        return ", as evaluate.ties says"
    return ", as both have learnt from the same data and a change has to be for the better"


def _why_undefined(measured: Measured) -> str:
    where = f"the examples of {measured.where}" if measured.where else "the eval split"
    return (
        f"it is undefined on {where}, as an AUC of one class is, or a precision where nothing is "
        "predicted positive. Look at the labels there, and at what the model predicts"
    )


def _beyond_bounds(measured: Measured, threshold: Threshold) -> str:
    """Which bound is not kept; empty if all are."""
    value, interval = measured.value, measured.noise.interval
    if threshold.least is not None and value < threshold.least:
        return f"below the threshold of {threshold.least:g}"
    if threshold.most is not None and value > threshold.most:
        return f"above the threshold of {threshold.most:g}"
    bounds = [
        (threshold.is_least_sure, threshold.least, "below"),
        (threshold.is_most_sure, threshold.most, "above"),
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
    # Of what only has to be better than a constant prediction there is none.
    return criteria.thresholds.get(name, Threshold())
