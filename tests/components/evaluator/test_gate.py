"""Thresholds and the model in service decide whether a model is blessed, without TFMA."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from tfx.types import standard_artifacts

from components.evaluator.gate import REPORT_FILE, Bounds, GateExecutor, decide, read_report
from trainer_module.errors import TrainingError
from trainer_module.families.measured import Estimate, Measured

DISTANCE = Bounds("distance", higher_is_better=False, most=0.5, tolerance=0.01)
COVERAGE = Bounds("coverage", higher_is_better=True, least=0.9)


@pytest.mark.parametrize(
    ("value", "in_service", "failure"),
    [
        (0.4, None, ""),
        (0.5, 0.495, ""),
        (0.6, None, "distance is 0.6"),
        (0.4, 0.3, "distance is 0.4, worse than the 0.3"),
        (0.3, 0.4, ""),
        (math.nan, None, "distance"),
        (0.4, math.nan, ""),
    ],
)
def test_lower_is_better_metric_is_compared_with_threshold_and_service(
    value: float, in_service: float | None, failure: str
) -> None:
    measured = {"distance": value, "other": 1.0}
    baseline = None if in_service is None else Measured({"distance": in_service})
    report = decide([DISTANCE], Measured(measured), baseline)
    assert report.blessed is (failure == "")
    assert report.reason.startswith(failure)
    assert [metric.name for metric in report.metrics] == ["distance", "other"]


def test_all_failures_are_reported() -> None:
    measured = Measured({"distance": 0.7, "coverage": 0.5}, failures=("it has collapsed",))
    report = decide([DISTANCE, COVERAGE], measured, Measured({"coverage": 0.8}))
    assert not report.blessed
    parts = report.reason.split("; ")
    assert [part.split()[0] for part in parts] == ["it", "distance", "coverage"]


def test_threshold_of_an_unmeasured_metric_is_an_error() -> None:
    with pytest.raises(TrainingError, match=r"distance.*coverage"):
        decide([DISTANCE], Measured({"coverage": 1.0}), None)


RETURN = Bounds("return", higher_is_better=True, least=100)
DRAWS, EPISODES, RUNS = 200, 40, 200


def returns(policy: np.ndarray) -> Measured:
    """The mean of a policy's episodes, [episodes] or [runs, episodes], with its resamples."""
    chosen = np.random.default_rng(0).integers(EPISODES, size=(DRAWS, EPISODES))
    return Measured({"return": Estimate(policy.mean(), policy[chosen].mean(1))})


def share_blessed(worse_by: float, bounds: Bounds = RETURN) -> float:
    """Of policies whose episodes are as hard as those of the policy in service, on average worse.

    What an episode's seed makes easy or hard, a deviation of 50, is the same for both.
    """
    random = np.random.default_rng(1)
    blessed = []
    for _ in range(RUNS):
        easy = random.normal(200, 50, EPISODES)
        old, new = (easy + random.normal(0, 10, EPISODES) for _ in range(2))
        report = decide([bounds], returns(new - worse_by), returns(old), confidence=0.95)
        blessed.append(report.blessed)
    return float(np.mean(blessed))


def test_share_of_blessed_models_follows_confidence() -> None:
    # One end of a 95 % interval is wrong in 2.5 of 100; a percentile interval of 40 in a few more.
    assert 0.92 < share_blessed(worse_by=0) <= 1
    # Paired, a loss of 10 is four of its standard errors of 2.2; unpaired it would be one.
    assert share_blessed(worse_by=10) < 0.02
    assert share_blessed(worse_by=10, bounds=replace(RETURN, tolerance=10)) > 0.9
    assert 0.4 < share_blessed(worse_by=0, bounds=replace(RETURN, keeps_ties=True)) < 0.6


def test_confident_threshold_is_compared_with_the_end_of_the_interval() -> None:
    measured = Measured({"return": Estimate(105, np.linspace(95, 115, 101))})
    assert decide([RETURN], measured, None, 0.9).blessed
    sure = replace(RETURN, is_least_sure=True)
    report = decide([sure], measured, None, 0.9)
    assert not report.blessed
    assert "96, is below 100" in report.reason
    most = Bounds("return", higher_is_better=True, most=110, is_most_sure=True)
    report = decide([most], measured, None, 0.9)
    assert "114, is above 110" in report.reason


@pytest.mark.parametrize(
    "found",
    [
        Estimate(150, np.array([math.nan] + 99 * [20.0])),
    ],
)
def test_confident_threshold_fails_without_an_interval(found: float | Estimate) -> None:
    sure = replace(RETURN, is_least_sure=True)
    report = decide([sure], Measured({"return": found}), None, 0.95)
    assert not report.blessed
    assert decide([RETURN], Measured({"return": found}), None, 0.95).blessed


def test_insignificant_loss_is_blessed_with_its_interval() -> None:
    old = Measured({"return": Estimate(150, 150 + np.linspace(-9, 9, 101))})
    spread = Measured({"return": Estimate(149, 149 - np.linspace(-9, 9, 101))})
    report = decide([RETURN], spread, old, 0.9)
    assert report.blessed
    assert "(difference: -17.2 to +15.2)" in report.reason


def test_report_survives_writing_and_reading(tmp_path: Path) -> None:
    measured = Measured(returns(np.arange(EPISODES) + 100.0).metrics, ("one note",), (), {"a": [1]})
    report = decide([RETURN], measured, returns(np.full(EPISODES, 90.0)), 0.95)
    (tmp_path / REPORT_FILE).write_text(json.dumps(asdict(report), allow_nan=False))
    assert read_report(str(tmp_path)) == report
    assert report.metrics[0].difference is not None


def measure_where_it_can(folder: Path, settings: dict[str, object]) -> dict[str, float]:
    """A family's `measure`, which cannot use models that were made for another environment."""
    del settings
    if "old" in str(folder):
        raise TrainingError("an observation has 3 numbers, and the policy takes 4.")
    return {"return": 120.0}


def test_unmeasurable_model_in_service_is_not_compared(tmp_path: Path) -> None:
    artifacts = {}
    for name, kind in (
        ("new", standard_artifacts.Model),
        ("old", standard_artifacts.Model),
        ("evaluation", standard_artifacts.ModelEvaluation),
        ("blessing", standard_artifacts.ModelBlessing),
    ):
        artifacts[name] = kind()
        artifacts[name].uri = str(tmp_path / name)
    properties = {
        "measure": f"{__name__}.measure_where_it_can",
        "bounds": json.dumps([asdict(RETURN)]),
        "confidence": "0.95",
        "custom_config": "{}",
    }
    outputs = {name: [artifacts[name]] for name in ("evaluation", "blessing")}
    models = {"model": [artifacts["new"]], "baseline_model": [artifacts["old"]]}
    GateExecutor().Do(models, outputs, properties)
    report = read_report(artifacts["evaluation"].uri)
    assert report is not None
    assert report.blessed
    assert "3 numbers" in report.notes[0]
    with pytest.raises(TrainingError, match="3 numbers"):
        GateExecutor().Do({"model": [artifacts["old"]]}, outputs, properties)
