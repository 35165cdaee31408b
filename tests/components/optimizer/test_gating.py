"""Variants are accepted or rejected by their metrics, size and latency."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from components.optimizer.gating import (
    DecidingMetric,
    ModelMeasurements,
    OptimizerPlan,
    VariantMetrics,
    decide,
    unmet_requirements,
)
from components.optimizer.report import OptimizerReport, VariantReport
from trainer_module.settings.optimize import OptimizeSettings

MODEL = VariantMetrics(
    {"accuracy": 0.96, "log_loss": 0.1, "bias": 0.02},
    {"plan=gold": {"accuracy": 0.9}, "plan=free": {"accuracy": math.nan}},
)
TAKEN = ModelMeasurements(bytes=4_000, measured={"p50_ms_batch_1": 1.0})


def plan_of(
    metric: str = "accuracy",
    better: bool | None = True,
    has_unit: bool = False,
    **settings: Any,
) -> OptimizerPlan:
    settings_of_plan = OptimizeSettings.model_validate({"variants": ["int8", "float"], **settings})
    deciding = DecidingMetric(name=metric, higher_is_better=better, has_unit=has_unit)
    return OptimizerPlan(settings=settings_of_plan, metric=deciding)


def made(
    size: int = 1_000, latency: float | None = 0.5, gold: float = 0.9, **metrics: float
) -> VariantReport:
    values = {**MODEL.metrics, **metrics}
    slices = {"plan=gold": {"accuracy": gold}, "plan=free": {"accuracy": math.nan}}
    return VariantReport(
        name="int8",
        accepted=False,
        bytes=size,
        metrics=values,
        slices=slices,
        measured={} if latency is None else {"p50_ms_batch_1": latency},
    )


def judged(made: VariantReport, plan: OptimizerPlan | None = None) -> VariantReport:
    return decide(plan or plan_of(), made, MODEL, TAKEN)


def test_a_variant_that_loses_no_more_than_it_may_is_accepted() -> None:
    report = judged(made(accuracy=0.955))
    assert report.accepted
    assert report.reasons == []
    assert report.drop == pytest.approx(0.005)
    assert (report.size_ratio, report.latency_ratio) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("found", "settings", "reason"),
    [
        (
            made(accuracy=0.9),
            {},
            r"accuracy is 0.9, .*optimize.accept.max_metric_drop",
        ),
        (made(accuracy=math.nan), {}, "accuracy is not a number"),
        (
            made(gold=0.8),
            {"accept": {"slices": True}},
            r"plan=gold is 0.8, .*optimize.accept.max_metric_drop",
        ),
        (
            made(size=2_000),
            {"accept": {"max_size_ratio": 0.3}},
            r"2,000 bytes.* 0.5 .*optimize.accept.max_size_ratio",
        ),
        (
            made(latency=2.0),
            {"accept": {"max_latency_ratio": 1e-6}},
            r"2 ms.* 1e-06 .*optimize.accept.max_latency_ratio",
        ),
        (
            made(latency=None),
            {"accept": {"max_latency_ratio": 1}},
            r"not measured.*optimize.accept.max_latency_ratio",
        ),
    ],
)
def test_variant_beyond_a_limit_is_rejected_with_its_key(
    found: VariantReport, settings: dict[str, Any], reason: str
) -> None:
    report = judged(found, plan_of(**settings))
    assert not report.accepted
    (found_reason,) = report.reasons
    assert re.search(reason, found_reason)


def test_unmeasured_variant_needs_accept_unmeasured() -> None:
    unmeasured = made(latency=None).model_copy(
        update={"unmeasured": "unmeasured on a GPU (no provider)"}
    )
    report = judged(unmeasured)
    assert (report.accepted, report.unmeasured) == (False, unmeasured.unmeasured)
    (reason,) = report.reasons
    assert reason.startswith("the variant is unmeasured on a GPU (no provider), so the latency")
    accept = {"unmeasured": True}
    assert judged(unmeasured, plan_of(accept=accept)).accepted
    (reason,) = judged(unmeasured, plan_of(accept={**accept, "max_latency_ratio": 1})).reasons
    assert reason.startswith("the latency was not measured")


def test_direction_of_the_metric_decides() -> None:
    loss = plan_of("log_loss", better=False)
    assert judged(made(log_loss=0.2), loss).drop == pytest.approx(0.1)
    assert judged(made(log_loss=0.05), loss).accepted
    bias = plan_of("bias", better=None)
    assert not judged(made(bias=-0.02), bias).accepted


@pytest.mark.parametrize("scale", [1e-6, 3.378e6])
def test_drop_of_errors_in_the_labels_unit_is_a_share(scale: float) -> None:
    plan = plan_of("mse", better=False, has_unit=True)
    model = VariantMetrics({"mse": scale})

    def judged_at(share: float) -> VariantReport:
        return decide(plan, made(mse=scale * share), model, TAKEN)

    assert judged_at(1 + 2e-7).accepted
    report = judged_at(1.0049)
    assert report.accepted
    assert (report.drop, report.drop_is_share) == (pytest.approx(0.0049), True)
    (reason,) = judged_at(1.006).reasons
    assert "0.60% worse than the model's" in reason
    assert "at most 0.500% is accepted" in reason


@pytest.mark.parametrize("metrics", [{}, {"accuracy": math.nan}])
def test_a_variant_whose_model_was_not_measured_is_refused(metrics: dict[str, float]) -> None:
    report = decide(plan_of(), made(), VariantMetrics(metrics), TAKEN)
    (reason,) = report.reasons
    assert reason.startswith("accuracy is not a number for the original model, so the drop")


def test_required_variants_that_are_refused_are_named() -> None:
    reports = [judged(made(accuracy=0.5)), VariantReport(name="float", accepted=True)]
    assert unmet_requirements(plan_of(), reports) == []
    (reason,) = unmet_requirements(plan_of(required=True), reports)
    assert reason.startswith("the required variant int8 is rejected: accuracy is 0.5, ")
    assert unmet_requirements(plan_of(required=["float"]), reports) == []


def test_a_report_and_a_plan_are_read_as_they_were_written() -> None:
    report = OptimizerReport(
        metric="accuracy",
        variants=[judged(made(accuracy=math.nan)), judged(made())],
        measured={"p50_ms_batch_1": 1.0},
    )
    again = OptimizerReport.model_validate_json(report.model_dump_json())
    assert again.accepted == ["int8"]
    assert math.isnan(again.variants[0].metrics["accuracy"])
    assert again.variants[1] == report.variants[1]
    plan = plan_of(required=["int8"], accept={"max_size_ratio": 0.3})
    assert OptimizerPlan.from_custom_config(json.dumps(plan.to_custom_config())) == plan
