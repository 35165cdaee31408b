"""Bounds to be met for certain, beside metrics that are measured without confidence intervals."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_module.errors import ConfigError
from trainer_module.settings.tasks import as_task


def verdict_of(**evaluate: Any) -> Any:
    from pipeline.config.sections.evaluate import Criteria, EvaluateSettings
    from pipeline.graph.evaluation import make_verdict

    return make_verdict(Criteria(as_task("binary"), EvaluateSettings.model_validate(evaluate)))


CONFIDENT = {"auc": {"min": {"value": 0.8, "confident": True}}}


def test_a_metric_without_intervals_is_refused_beside_a_confident_bound() -> None:
    metrics = ["auc", {"class_name": "MeanLabel"}]
    with pytest.raises(ConfigError, match=r"evaluate\.thresholds\.auc.*MeanLabel"):
        verdict_of(metrics=metrics, thresholds=CONFIDENT)


def test_a_confident_bound_decides_beside_other_metrics() -> None:
    verdict = verdict_of(metrics=["auc", "log_loss"], thresholds=CONFIDENT)
    assert (verdict.lower, verdict.upper) == (("auc",), ())


def test_a_metric_without_intervals_is_measured_beside_a_plain_bound() -> None:
    metrics = ["auc", {"class_name": "MeanLabel"}]
    assert verdict_of(metrics=metrics, thresholds={"auc": {"min": 0.8}}).lower == ()
