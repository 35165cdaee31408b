"""What the bounds of metrics and the model in service decide, without TFMA."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

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
        (0.6, None, "distance is 0.6, above the threshold of 0.5"),
        (0.4, 0.3, "distance is 0.4, worse than the 0.3 of the model in service"),
        (0.3, 0.4, ""),
        (math.nan, None, "distance is not a number"),
        (0.4, math.nan, ""),
    ],
)
def test_less_is_better_up_to_a_bound(value: float, in_service: float | None, failure: str) -> None:
    measured = {"distance": value, "other": 1.0}
    baseline = None if in_service is None else Measured({"distance": in_service})
    report = decide([DISTANCE], Measured(measured), baseline)
    assert report.blessed is (failure == "")
    assert report.reason.startswith(failure)
    assert [metric.name for metric in report.metrics] == ["distance", "other"]


def test_more_is_better_and_all_failures_are_told() -> None:
    measured = Measured({"distance": 0.7, "coverage": 0.5}, failures=("it has collapsed",))
    report = decide([DISTANCE, COVERAGE], measured, Measured({"coverage": 0.8}))
    assert report.reason == (
        "it has collapsed; distance is 0.7, above the threshold of 0.5; "
        "coverage is 0.5, below the threshold of 0.9"
    )
    needs = {metric.name: metric.needs for metric in report.metrics}
    assert needs == {
        "distance": "at most 0.5",
        "coverage": "at least 0.9, not worse than in service",
    }


def test_what_is_not_compared_has_bounds_alone() -> None:
    bounds = Bounds("size", higher_is_better=False, is_compared=False)
    assert decide([bounds], Measured({"size": 2.0}), Measured({"size": 1.0})).blessed


def test_a_metric_that_decides_has_to_be_measured() -> None:
    words = "there are thresholds for distance, but the family measures only: coverage"
    with pytest.raises(TrainingError, match=words):
        decide([DISTANCE], Measured({"coverage": 1.0}), None)


RETURN = Bounds("return", higher_is_better=True, least=100)
DRAWS, EPISODES, RUNS = 200, 40, 400


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


def test_a_model_that_is_worse_by_chance_alone_is_blessed_as_often_as_confidence_says() -> None:
    # One end of a 95 % interval is wrong in 2.5 of 100; a percentile interval of 40 in a few more.
    assert 0.94 < share_blessed(worse_by=0) < 0.995
    # Paired, a loss of 10 is four of its standard errors of 2.2; unpaired it would be one.
    assert share_blessed(worse_by=10) < 0.02
    assert share_blessed(worse_by=10, bounds=replace(RETURN, tolerance=10)) > 0.9
    assert 0.4 < share_blessed(worse_by=0, bounds=replace(RETURN, keeps_ties=True)) < 0.6


def test_bounds_are_kept_for_certain_where_that_is_asked() -> None:
    measured = Measured({"return": Estimate(105, np.linspace(95, 115, 101))})
    assert decide([RETURN], measured, None, 0.9).blessed
    sure = replace(RETURN, is_least_sure=True)
    report = decide([sure], measured, None, 0.9)
    assert report.reason == "return is 105, and the lower end of its interval, 96, is below 100"
    assert report.metrics[0].needs == "at least 100 for certain"
    most = Bounds("return", higher_is_better=True, most=110, is_most_sure=True)
    report = decide([most], measured, None, 0.9)
    assert "upper end of its interval, 114, is above 110" in report.reason


def test_resamples_that_are_no_numbers_excuse_nothing() -> None:
    spoilt = Measured({"return": Estimate(150, np.full(DRAWS, math.nan))})
    report = decide([RETURN], spoilt, returns(np.full(EPISODES, 200.0)), 0.95)
    assert "return is 150, worse than the 200" in report.reason


@pytest.mark.parametrize("found", [150.0, Estimate(150, np.array([math.nan] + 99 * [20.0]))])
def test_no_bound_is_kept_for_certain_without_an_interval(found: float | Estimate) -> None:
    sure = replace(RETURN, is_least_sure=True)
    report = decide([sure], Measured({"return": found}), None, 0.95)
    assert report.reason.startswith("return is 150 and has no confidence interval")
    assert decide([RETURN], Measured({"return": found}), None, 0.95).blessed


def test_a_model_that_is_worse_by_chance_is_not_said_to_be_as_good() -> None:
    old = Measured({"return": Estimate(150, 150 + np.linspace(-9, 9, 101))})
    spread = Measured({"return": Estimate(149, 149 - np.linspace(-9, 9, 101))})
    report = decide([RETURN], spread, old, 0.9)
    assert report.reason == (
        "every threshold is met, and the model is not significantly worse than in service: "
        "return 149, not significantly worse than 150 (difference: -17.2 to +15.2)"
    )
    assert decide([RETURN], old, old, 0.9).reason.endswith("worse than the model in service")


@pytest.mark.parametrize("resamples", [[], [[1.0, 2.0]], ["many"]])
def test_resamples_are_a_list_of_numbers(resamples: list[Any]) -> None:
    with pytest.raises(TrainingError, match="resamples of a metric"):
        Estimate(1.0, resamples)


def test_models_that_are_resampled_differently_are_not_compared() -> None:
    fewer = Measured({"return": Estimate(200, np.full(DRAWS - 1, 200.0))})
    with pytest.raises(TrainingError, match="return: 199 resamples cannot be paired with 200"):
        decide([RETURN], fewer, returns(np.full(EPISODES, 200.0)), 0.95)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    measured = Measured(returns(np.arange(EPISODES) + 100.0).metrics, ("one note",), (), {"a": [1]})
    report = decide([RETURN], measured, returns(np.full(EPISODES, 90.0)), 0.95)
    (tmp_path / REPORT_FILE).write_text(json.dumps(asdict(report), allow_nan=False))
    assert read_report(str(tmp_path)) == report
    assert report.metrics[0].difference is not None


def measure_where_it_can(folder: Path, told: dict[str, object]) -> dict[str, float]:
    """A family's `measure`, which cannot use models that were made for another environment."""
    del told
    if "old" in str(folder):
        raise TrainingError("an observation has 3 numbers, and the policy takes 4.")
    return {"return": 120.0}


def test_a_model_in_service_that_cannot_be_measured_is_not_compared(tmp_path: Path) -> None:
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
    assert report.reason.endswith("there is no model in service to compare with")
    assert report.notes[0].endswith("(an observation has 3 numbers, and the policy takes 4.)")
    with pytest.raises(TrainingError, match="3 numbers"):
        GateExecutor().Do({"model": [artifacts["old"]]}, outputs, properties)
