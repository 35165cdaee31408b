"""The decision whether to accept a variant, by its metric, size and latency."""

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
"""The keys of the section on which the Optimizer's decisions depend. The conversion of a variant
does not depend on them."""


class DecidingMetric(BaseModel):
    """The metric in which a variant is compared with its model."""

    model_config = ConfigDict(frozen=True)

    name: str
    higher_is_better: bool | None
    """Whether higher values are better. None if a value may be too large or too small: then every
    change is a drop."""
    has_unit: bool
    """Whether the metric has a unit, such as the unit of the label. The drop is then relative."""

    def drop(self, model: float, variant: float) -> float:
        """Returns the drop: how much worse the variant's value is than the model's value.

        The drop is negative if the variant is better. If the metric has a unit, the drop is divided
        by the model's value, and infinite if that value is 0.
        """
        if self.higher_is_better is None:
            drop = abs(model - variant)
        else:
            drop = model - variant if self.higher_is_better else variant - model
        if not self.has_unit or not drop:
            return drop
        return drop / abs(model) if model else math.copysign(math.inf, drop)


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
"""The allowed rounding error in a drop."""

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
    """The measurements of the model itself."""

    bytes: int
    """The bytes of the model's weights as float32."""
    measured: Mapping[str, Any]
    """The figures of `trainer_module.export.variants.measuring`."""


def latency_of(measured: Mapping[str, Any]) -> float | None:
    """Returns the median milliseconds for one example, or None if they were not measured."""
    latency = measured.get("p50_ms_batch_1")
    return None if latency is None else float(latency)


def decide(
    plan: OptimizerPlan,
    report: VariantReport,
    model: VariantMetrics,
    measurements: ModelMeasurements,
) -> VariantReport:
    """Returns the report of a variant, with the decision and the reasons for a rejection.

    Args:
      report: the report without the decision. If it already has reasons, the variant could not be
        converted or evaluated.
    """
    if report.reasons:
        return report
    accept, name = plan.settings.accept, plan.metric.name
    value, model_value = report.metrics.get(name), model.metrics.get(name)
    size, latency = report.bytes or 0, latency_of(report.measured)
    size_ratio = _ratio(size, measurements.bytes)
    latency_ratio = _ratio(latency, latency_of(measurements.measured))
    worse_slices, remarks = (
        _slice_reasons(plan, report.slices, model) if accept.slices else ([], [])
    )
    reasons = [
        *_metric_reasons(plan, value, model_value, ""),
        *worse_slices,
        *_size_reasons(accept, size, size_ratio),
        *_latency_reasons(accept, latency, latency_ratio),
        *_unmeasured_reasons(accept, report.unmeasured),
    ]
    changes = {
        "accepted": not reasons,
        "reasons": reasons,
        "remarks": [*report.remarks, *remarks],
        "size_ratio": size_ratio,
        "drop": None
        if value is None or model_value is None
        else plan.metric.drop(model_value, value),
        "drop_is_share": plan.metric.has_unit,
        "latency_ratio": latency_ratio,
    }
    return report.model_copy(update=changes)


def unmet_requirements(plan: OptimizerPlan, reports: list[VariantReport]) -> list[str]:
    """Returns a sentence about each required variant that is rejected."""
    required = set(plan.settings.required_variants)
    return [
        f"the required variant {report.name} is rejected: {'; '.join(report.reasons)}"
        for report in reports
        if report.name in required and not report.accepted
    ]


def _metric_reasons(
    plan: OptimizerPlan, value: float | None, model_value: float | None, where: str
) -> list[str]:
    """Returns the reasons why the drop of the metric is too large, if it is."""
    name, max_drop = plan.metric.name, plan.settings.accept.max_metric_drop
    if model_value is None or not math.isfinite(model_value):
        return [
            f"{name}{where} is not a number for the original model, so the drop of the variant is "
            "unknown: set evaluate.thresholds for another metric, or write another metric first in "
            "evaluate.metrics"
        ]
    if value is None or not math.isfinite(value):
        return [f"{name}{where} is not a number"]
    drop = plan.metric.drop(model_value, value)
    if drop <= max_drop + _ROUNDING:
        return []
    drop_shown, limit = (f"{drop:.2g}", f"{max_drop:g}")
    if plan.metric.has_unit:
        drop_shown, limit = (f"{drop:.2%}", f"{max_drop:.3%}")
    return [
        f"{name}{where} is {value:.4g}, {drop_shown} worse than the model's {model_value:.4g}; at "
        f"most {limit} is accepted (optimize.accept.max_metric_drop)"
    ]


def _slice_reasons(
    plan: OptimizerPlan, variant: Mapping[str, Metrics], model: VariantMetrics
) -> tuple[list[str], list[str]]:
    """Returns the reasons for slices with too large a drop, and a remark on slices without
    metric.
    """
    name = plan.metric.name
    reasons, unmeasured = [], []
    for slice_name, metrics in model.slices.items():
        model_value = metrics.get(name)
        if model_value is None or not math.isfinite(model_value):
            # For example, the AUC of a slice with one class is undefined.
            unmeasured.append(slice_name)
            continue
        value = variant.get(slice_name, {}).get(name)
        reasons += _metric_reasons(plan, value, model_value, f" of {slice_name}")
    if not unmeasured:
        return reasons, []
    names = enumerate_names(unmeasured, "and")
    return reasons, [f"{name} is undefined on {names} and does not decide there"]


def _size_reasons(accept: AcceptSettings, size: int, ratio: float | None) -> list[str]:
    max_ratio = accept.max_size_ratio
    if max_ratio is None or ratio is None or ratio <= max_ratio:
        return []
    return [
        f"the size, {size:,} bytes, is {ratio:.3g} of the size of the float32 weights; at most "
        f"{max_ratio:g} is accepted (optimize.accept.max_size_ratio)"
    ]


def _latency_reasons(
    accept: AcceptSettings, latency: float | None, ratio: float | None
) -> list[str]:
    max_ratio = accept.max_latency_ratio
    if max_ratio is None:
        return []
    if ratio is None or latency is None:
        return ["the latency was not measured, but optimize.accept.max_latency_ratio limits it"]
    if ratio <= max_ratio:
        return []
    return [
        f"the latency, {latency:.3g} ms, is {ratio:.3g} of the original model's; at most "
        f"{max_ratio:g} is accepted (optimize.accept.max_latency_ratio)"
    ]


def _unmeasured_reasons(accept: AcceptSettings, unmeasured: str) -> list[str]:
    if not unmeasured or accept.unmeasured:
        return []
    return [
        f"the variant is {unmeasured}, so the latency and the metrics there are unknown; run the "
        "Optimizer on a machine with a GPU, or set optimize.accept.unmeasured: true to push the "
        "variant unmeasured"
    ]


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
