"""The decision which variants are good enough: by metric, size and latency, relative to the
model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from components.optimizer.report import VariantReport
from trainer_module.errors import enumerate_names
from trainer_module.settings.optimize import AcceptSettings, OptimizeSettings, VariantName

OPTIMIZE_KEY, METRIC_KEY = "optimize", "metric"
"""The keys of the plan in a `custom_config`: the config's section, and the metric that decides."""

DECISION_KEYS = {"accept", "required", "variants"}
"""The keys of the section that concern the Optimizer's decisions; none changes how a variant is
made."""


class DecidingMetric(BaseModel):
    """The metric by which a variant is compared with its model."""

    model_config = ConfigDict(frozen=True)

    name: str
    higher_is_better: bool | None
    """Whether higher values are better; None if a value may be too large or too small, so that any
    change is a drop."""

    has_unit: bool
    """Whether a drop is relative to the model's value, as for an error in the label's unit."""

    def drop(self, model: float, variant: float) -> float:
        """Returns how much worse the variant's value is; negative if it is better.

        Relative to the model's value if the metric has a unit; infinite if that value is 0.
        """
        if self.higher_is_better is None:
            worse = abs(model - variant)
        else:
            worse = model - variant if self.higher_is_better else variant - model
        if not self.has_unit or not worse:
            return worse
        return worse / abs(model) if model else math.copysign(math.inf, worse)


class OptimizerPlan(BaseModel):
    """The variants to make, and the conditions for accepting them."""

    model_config = ConfigDict(frozen=True)

    settings: OptimizeSettings
    metric: DecidingMetric

    @classmethod
    def from_custom_config(cls, custom_config: str) -> OptimizerPlan:
        """Returns the plan from the JSON of `to_custom_config`."""
        config = json.loads(custom_config)
        return cls(settings=config[OPTIMIZE_KEY], metric=config[METRIC_KEY])

    def to_custom_config(self) -> dict[str, Any]:
        """Returns the plan as a `custom_config` for the executor."""
        return {
            OPTIMIZE_KEY: self.settings.model_dump(mode="json", include=DECISION_KEYS),
            METRIC_KEY: self.metric.model_dump(mode="json"),
        }

    @property
    def names(self) -> list[VariantName]:
        """The variants to make, in the order of the config."""
        return list(self.settings.variants)


_ROUNDING = 1e-9
"""The rounding error allowed in a difference of two metrics."""

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class VariantMetrics:
    """The metrics of a model or a variant on the eval split."""

    metrics: Metrics
    """The metrics of all examples, by name."""
    slices: Mapping[str, Metrics] = field(default_factory=dict)
    """The metrics by slice, such as `plan=gold`."""


@dataclass(frozen=True)
class ModelMeasurements:
    """The size and the latency of the model itself."""

    bytes: int
    """The bytes of its weights as float32."""
    measured: Mapping[str, Any]
    """The figures of `trainer_module.export.variants.measuring`."""


def latency_of(measured: Mapping[str, Any]) -> float | None:
    """Returns the median time of one example in milliseconds; None if it was not measured."""
    found = measured.get("p50_ms_batch_1")
    return None if found is None else float(found)


def decide(
    plan: OptimizerPlan,
    report: VariantReport,
    model: VariantMetrics,
    measurements: ModelMeasurements,
) -> VariantReport:
    """Returns the report of a variant, with the decision and the reasons for a refusal.

    Args:
      plan: the conditions.
      report: the figures of the variant; one with reasons could not be made or evaluated.
      model: the metrics of its model on the same examples.
      measurements: the size and latency of its model.
    """
    if report.reasons:
        return report
    accept, name = plan.settings.accept, plan.metric.name
    value, of_model = report.metrics.get(name), model.metrics.get(name)
    bytes_, latency = report.bytes or 0, latency_of(report.measured)
    size, slower = (
        _ratio(bytes_, measurements.bytes),
        _ratio(latency, latency_of(measurements.measured)),
    )
    worse_slices, unmeasured = (
        _slice_reasons(plan, report.slices, model) if accept.slices else ([], [])
    )
    reasons = [
        *_metric_reasons(plan, value, of_model, ""),
        *worse_slices,
        *_size_reasons(accept, bytes_, size),
        *_latency_reasons(accept, latency, slower),
        *_unmeasured_reasons(accept, report.unmeasured),
    ]
    changes = {
        "accepted": not reasons,
        "reasons": reasons,
        "remarks": [*report.remarks, *unmeasured],
        "size_ratio": size,
        "drop": None if value is None or of_model is None else plan.metric.drop(of_model, value),
        "drop_is_share": plan.metric.has_unit,
        "latency_ratio": slower,
    }
    return report.model_copy(update=changes)


def unmet_requirements(plan: OptimizerPlan, reports: list[VariantReport]) -> list[str]:
    """Returns sentences about required variants that are refused."""
    required = set(plan.settings.required_variants)
    return [
        f"the required variant {report.name} is refused: {'; '.join(report.reasons)}"
        for report in reports
        if report.name in required and not report.accepted
    ]


def _metric_reasons(
    plan: OptimizerPlan, value: float | None, of_model: float | None, where: str
) -> list[str]:
    """Returns why a metric's value is too bad; empty if it is not."""
    name, most = plan.metric.name, plan.settings.accept.max_metric_drop
    if of_model is None or not math.isfinite(of_model):
        return [
            f"{name}{where} is not a number for the original model, and the loss of the variant is "
            "unknown: give a threshold to another metric, or write another metric first in "
            "evaluate.metrics"
        ]
    if value is None or not math.isfinite(value):
        return [f"{name}{where} is not a number"]
    drop = plan.metric.drop(of_model, value)
    if drop <= most + _ROUNDING:
        return []
    lost, limit = (f"{drop:.2g}", f"{most:g}")
    if plan.metric.has_unit:
        lost, limit = (f"{drop:.2%}", f"{most:.3%}")
    return [
        f"{name}{where} is {value:.4g}, {lost} worse than the model's {of_model:.4g}; at most "
        f"{limit} is accepted (optimize.accept.max_metric_drop)"
    ]


def _slice_reasons(
    plan: OptimizerPlan, variant: Mapping[str, Metrics], model: VariantMetrics
) -> tuple[list[str], list[str]]:
    """Returns why slices are too bad, and a remark on slices where the model has no metric."""
    name = plan.metric.name
    reasons, unmeasured = [], []
    for title, metrics in model.slices.items():
        of_model = metrics.get(name)
        if of_model is None or not math.isfinite(of_model):
            # For example, the AUC of a slice with one class is undefined.
            unmeasured.append(title)
            continue
        found = variant.get(title, {}).get(name)
        reasons += _metric_reasons(plan, found, of_model, f" of {title}")
    if not unmeasured:
        return reasons, []
    named = enumerate_names(unmeasured, "and")
    return reasons, [f"{name} cannot be measured on {named} and does not decide there"]


def _size_reasons(accept: AcceptSettings, size: int, ratio: float | None) -> list[str]:
    most = accept.max_size_ratio
    if most is None or ratio is None or ratio <= most:
        return []
    return [
        f"its size, {size:,} bytes, is {ratio:.3g} of the size of the float32 weights; at most "
        f"{most:g} is accepted (optimize.accept.max_size_ratio)"
    ]


def _latency_reasons(
    accept: AcceptSettings, latency: float | None, ratio: float | None
) -> list[str]:
    most = accept.max_latency_ratio
    if most is None:
        return []
    if ratio is None or latency is None:
        return ["its latency was not measured, but optimize.accept.max_latency_ratio limits it"]
    if ratio <= most:
        return []
    return [
        f"its latency, {latency:.3g} ms, is {ratio:.3g} of the original model's; at most {most:g} "
        "is accepted (optimize.accept.max_latency_ratio)"
    ]


def _unmeasured_reasons(accept: AcceptSettings, unmeasured: str) -> list[str]:
    if not unmeasured or accept.unmeasured:
        return []
    return [
        f"it is {unmeasured}: its latency and accuracy there are unknown; run the Optimizer on a "
        "machine with a GPU, or push it unmeasured by optimize.accept.unmeasured: true"
    ]


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
