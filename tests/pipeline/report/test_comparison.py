"""Two runs beside each other, from their summaries alone."""

from __future__ import annotations

import math

import pytest

from pipeline.report.comparison import Difference, compare_runs, interval_of_difference
from pipeline.report.text import NONE
from tests.support.stored_runs import details_of, metric, summary_of

FIRST, SECOND = "2026-01-05T03-00-00.000001", "2026-01-06T03-00-00.000001"


def test_interval_of_a_difference_is_that_of_independent_normal_estimates() -> None:
    # Symmetric intervals have the half-widths 1.96 s, and the variances of both add up.
    found = interval_of_difference(metric(0.8, 0.77, 0.83), metric(0.9, 0.86, 0.94))
    assert found == pytest.approx((0.1 - 0.05, 0.1 + 0.05))
    skewed = interval_of_difference(metric(0.9, 0.8, 0.93), metric(0.9, 0.8, 0.93))
    assert skewed == pytest.approx((-math.hypot(0.1, 0.03), math.hypot(0.1, 0.03)))


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (metric(0.95, 0.92, 0.98), "more than chance"),
        (metric(0.83, 0.78, 0.88), "chance explains it"),
        (metric(0.83, math.nan, math.nan), "no interval is known"),
        (None, "only one run has it"),
    ],
)
def test_verdict_on_a_difference_follows_its_interval(second, verdict: str) -> None:
    metrics = {} if second is None else {"auc": second}
    found = compare_runs(summary_of(FIRST), summary_of(SECOND, metrics=metrics))
    assert [m.verdict for m in found.metrics] == [verdict]


def test_config_data_columns_and_costs_that_differ_are_listed() -> None:
    first = summary_of(FIRST, details=details_of({"train": {"epochs": 2, "seed": 1}}))
    config = {"train": {"epochs": 3, "seed": 1}, "model": "trees"}
    second = summary_of(
        SECOND, examples={"train": 900, "eval": 210}, details=details_of(config, price_mean=11.0)
    )
    found = compare_runs(first, second)
    assert found.config == [
        Difference("train.epochs", "2", "3"),
        Difference("model", NONE, "trees"),
    ]
    assert found.code == []
    assert Difference("rows of eval", "200", "210") in found.data
    assert [(c.name, c.change) for c in found.columns] == [
        ("price", "mean 10 to 11 (+0.5 standard deviations)")
    ]
    (trainer,) = [step for step in found.steps if step.name == "Trainer"]
    assert (trainer.seconds, trainer.cpu_seconds) == ((4.0, 4.0), (10.0, 11.0))
    assert any("eval splits differ" in note for note in found.notes)
