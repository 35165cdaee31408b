"""Finals: the best trials are measured again beside the config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from components.tuner.records import TrialRecord, TrialState, best_of, choose, plan_finals
from components.tuner.study import Study
from trainer_module.tuning.plan import Objective, SearchPlan, TrialResult

AUC = Objective("val_auc", higher_is_better=True)
ERROR = Objective("val_rmse", higher_is_better=False)
GIVEN: dict[str, Any] = {
    "label": "y",
    "task": "binary",
    "features": {"x": {"type": "numeric"}},
}


def trials_of(values: Sequence[float], seconds: float = 10.0) -> list[TrialRecord]:
    return [
        TrialRecord(number=i, state=TrialState.DONE, value=value, examples=100, seconds=seconds)
        for i, value in enumerate(values)
    ]


def test_finals_measure_the_config_and_the_best_trials() -> None:
    trials = trials_of([0.7, 0.6, 0.9, 0.5, 0.8, 0.75, 0.1, 0.2])
    trials[4].state = TrialState.PRUNED
    first = [(0, 1), (2, 1), (5, 1), (1, 1)]
    assert plan_finals(trials, AUC, 130)[:8] == [*first, *((n, 2) for n, _ in first)]
    assert len(plan_finals(trials, AUC, 130)) == 12
    assert len(plan_finals(trials, AUC, 1e6)) == 16, "there are four other parts"
    # With less time fewer are.
    assert plan_finals(trials, AUC, 65) == [(0, 1), (2, 1), (5, 1), (0, 2), (2, 2), (5, 2)]
    assert plan_finals(trials, AUC, 39) == []
    # Where no time is set, half as many as there were trials.
    assert plan_finals(trials, AUC, None) == [(0, 1), (2, 1), (0, 2), (2, 2)]
    assert plan_finals(trials[:3], AUC, None) == []


@pytest.mark.parametrize(
    ("config", "second", "third", "number"),
    [
        ([0.80, 0.70], [0.82, 0.73], [0.81, 0.71], 1),
        ([0.80, 0.70], [0.79, 0.69], [0.81, 0.71], 2),
        ([0.80, 0.70, 0.90], [0.90, 0.60, 0.91], [0.79, 0.71, 0.89], 0),
    ],
)
def test_finals_decide_by_all_parts(
    config: list[float], second: list[float], third: list[float], number: int
) -> None:
    trials = trials_of([0.5, 0.99, 0.9, 0.6])
    for trial, values in zip(trials, (config, second, third), strict=False):
        trial.again = dict(enumerate(values, 1))
    chosen = choose(trials, AUC, is_automatic=True)
    assert chosen is not None
    assert chosen.number == number
    errors = [t.model_copy(update={"again": {p: -v for p, v in t.again.items()}}) for t in trials]
    same = choose(errors, ERROR, is_automatic=True)
    assert same is not None
    assert same.number == number


@pytest.mark.parametrize(
    ("name", "first", "best", "examples", "number"),
    [
        ("val_auc", 0.9, 0.905, 100, 0),
        ("val_auc", 0.9, 0.915, 100, 1),
        ("val_rmse", 10.0, 8.5, 100, 1),
    ],
)
def test_config_is_kept_unless_a_trial_is_significantly_better(
    name: str, first: float, best: float, examples: int, number: int
) -> None:
    objective = Objective(name, higher_is_better=name == "val_auc")
    trials = [
        TrialRecord(number=i, state=TrialState.DONE, value=value, examples=examples)
        for i, value in enumerate((first, best))
    ]
    chosen = choose(trials, objective, is_automatic=True)
    assert chosen is not None
    assert chosen.number == number
    assert choose(trials, objective, is_automatic=False) == best_of(trials, objective)


def test_values_of_finals_are_stored_with_the_trials(tmp_path: Path) -> None:
    plan = SearchPlan(given=GIVEN, tune={"auto": True, "trials": 2})
    study = Study(str(tmp_path), plan)
    for value in (0.7, 0.8):
        proposal = study.ask("one")
        assert proposal is not None
        study.finish(proposal.number, TrialResult(value, {}, 100, 2, 2, False, 0.5))
    study.measure_again((0, 1), 0.6, 2.0)
    # Another process of the search.
    Study(str(tmp_path), plan).measure_again((1, 1), 0.9, 3.0)
    study.measure_again((1, 2), None, 1.0)
    first, second = study.trials()
    assert (first.again, first.seconds_again) == ({1: 0.6}, 2.0)
    assert (second.again, second.seconds_again) == ({1: 0.9}, 4.0)
    assert study.measured_again() == [(0, 1), (1, 1), (1, 2)], "what failed is not done again"
    assert study.values_of(1) == second.values != {}
