"""What the bounds of metrics and the model in service decide, without TFMA."""

from __future__ import annotations

import math

import pytest

from components.evaluator.gate import Bounds, decide
from trainer_module.errors import TrainingError

DISTANCE = Bounds("distance", higher_is_better=False, most=0.5, tolerance=0.01)
COVERAGE = Bounds("coverage", higher_is_better=True, least=0.9)


@pytest.mark.parametrize(
    ("value", "in_service", "failure"),
    [
        (0.4, None, ""),
        (0.5, 0.495, ""),
        (0.6, None, "distance is 0.6, above the threshold of 0.5"),
        (0.4, 0.3, "distance is 0.4, worse than 0.3 of the model in service"),
        (0.3, 0.4, ""),
        (math.nan, None, "distance is nan, not a number"),
        (0.4, math.nan, ""),
    ],
)
def test_less_is_better_up_to_a_bound(value: float, in_service: float | None, failure: str) -> None:
    measured = {"distance": value, "other": 1.0}
    baseline = None if in_service is None else {"distance": in_service}
    report = decide([DISTANCE], measured, baseline)
    assert report.blessed is (failure == "")
    assert report.reason.startswith(failure)
    assert [metric.name for metric in report.metrics] == ["distance", "other"]


def test_more_is_better_and_all_failures_are_told() -> None:
    report = decide([DISTANCE, COVERAGE], {"distance": 0.7, "coverage": 0.5}, {"coverage": 0.8})
    assert report.reason == (
        "distance is 0.7, above the threshold of 0.5; coverage is 0.5, below the threshold of 0.9"
    )
    needs = {metric.name: metric.needs for metric in report.metrics}
    assert needs == {
        "distance": "at most 0.5",
        "coverage": "at least 0.9, not worse than in service",
    }


def test_what_is_not_compared_has_bounds_alone() -> None:
    bounds = Bounds("size", higher_is_better=False, is_compared=False)
    assert decide([bounds], {"size": 2.0}, {"size": 1.0}).blessed


def test_a_metric_that_decides_has_to_be_measured() -> None:
    words = "the family measures coverage, and not distance, which decides"
    with pytest.raises(TrainingError, match=words):
        decide([DISTANCE], {"coverage": 1.0}, None)
