"""How far intervals reach and what they cover is measured, against scikit-learn and NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sk

from pipeline.runs.evaluation_report import read_evaluation
from tests.support.evaluation_artifacts import HALF, config_of, measure, write_examples, write_model
from trainer_module.families.supervised.tasks.numbers import RegressionTask


def test_coverage_and_width_against_a_model_in_service_without_quantiles(tmp_path: Path) -> None:
    truth = np.repeat([0.0, 1.0], HALF)
    number = np.where(truth > 0, 0.8, 0.1)
    low = np.where(np.arange(2 * HALF) % 4, number - 0.3, number + 0.01)
    high, plain = number + 0.25, np.full(2 * HALF, 0.5)
    examples = write_examples(tmp_path, number=number, low=low, high=high, plain=plain)
    task = RegressionTask(kind="regression", quantiles=[0.1, 0.9])
    candidate = write_model(tmp_path, "number", "low", "high", task=task)
    in_service = write_model(tmp_path, "plain", task="regression")
    thresholds = {"mae": {"max": 1}, "coverage": {"min": 0.95}, "pinball_loss": {"max": 9}}
    config = config_of(
        {"metrics": ["mae", "interval_width"], "thresholds": thresholds},
        task=task.model_dump(),
    )
    measured = measure(tmp_path / "measured", config, examples, candidate, in_service)
    report = read_evaluation(measured.uri, config.criteria, measured.blessed)
    found = report.metrics
    covered = np.mean((low <= truth) & (truth <= high))
    pinball = [
        sk.mean_pinball_loss(truth, at, alpha=level)
        for level, at in zip(task.quantiles, (low, high), strict=True)
    ]
    expected = {
        "mae": sk.mean_absolute_error(truth, number),
        "coverage": covered,
        "interval_width": np.mean(high - low),
        "pinball_loss": np.mean(pinball),
    }
    assert {name: metric.value for name, metric in found.items()} == pytest.approx(
        expected, rel=1e-5
    )
    assert found["mae"].in_service == pytest.approx(0.5)
    assert found["coverage"].in_service is None
    assert found["coverage"].needs == "at least 0.95"
    assert not report.blessed
    assert report.reason == f"coverage is {covered:.4g}, below the threshold of 0.95"
