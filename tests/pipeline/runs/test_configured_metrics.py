"""Metrics of TFMA's config, measured and held to thresholds by the names that they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.records.summary import EvaluationReport
from pipeline.runs.evaluation_report import read_evaluation
from tests.support.evaluation_artifacts import (
    HALF,
    ROWS,
    SURE,
    config_of,
    measure,
    write_examples,
    write_model,
)

"""The folder of a module as users write them."""
pytestmark = pytest.mark.slow

MISSES = 5
SCORES = [0.1] * (HALF + MISSES) + [0.9] * (HALF - MISSES)


def evaluate(folder: Path, scores: list[float], **evaluate: Any) -> EvaluationReport:
    config = config_of(evaluate)
    examples = write_examples(folder, scores=scores)
    measured = measure(folder / "one", config, examples, write_model(folder, "scores"))
    return read_evaluation(measured.uri, config.criteria, measured.blessed)


def test_metric_of_tfma_has_its_arguments_and_threshold(tmp_path: Path) -> None:
    metric = {"class_name": "Specificity", "config": {"thresholds": [0.05], "name": "strict"}}
    found = evaluate(tmp_path, SURE, metrics=[metric], thresholds={"strict": {"min": 0.5}})
    assert [*found.metrics] == ["auc", "accuracy", "log_loss", "f1", "average_precision", "strict"]
    assert found.metrics["strict"].value == pytest.approx(1 / HALF)
    assert not found.blessed
    assert found.reason == "strict is 0.08333, below the threshold of 0.5"


def test_metric_of_users_has_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no mean of Keras's own, so that TFMA computes all of them."""
    metric = {"class_name": "Cost", "module": "evaluated_by_users", "config": {"per_miss": 10}}
    found = evaluate(tmp_path, SCORES, metrics=["auc", metric], thresholds={"cost": {"max": 2}})
    values = {name: one.value for name, one in found.metrics.items()}
    assert values["cost"] == pytest.approx(10 * MISSES / ROWS)
    assert not found.blessed
    assert found.reason == "cost is 2.083, above the threshold of 2"
