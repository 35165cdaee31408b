"""A study on a disk: its proposals, its records, and its repair after a kill."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.tuner.records import TrialState, best_of, choose, ranked, summarize
from components.tuner.study import JOURNAL, MAX_ATTEMPTS, Study, cut_half_line
from trainer_module.errors import ConfigError
from trainer_module.tuning.plan import SearchPlan, TrialResult

SPACE = {
    "train.learning_rate": {"log": [1e-4, 1e-1]},
    "model.dropout": {"float": [0.0, 0.5]},
    "model.hidden_units": {"choice": [[8], [16, 8]]},
}
GIVEN = {"label": "y", "task": "binary", "features": {"x": {"type": "numeric"}}}
EPOCHS = 16


def make_plan(space: dict[str, Any] | None = SPACE, **tune: Any) -> SearchPlan:
    given = {**GIVEN, "model": {"kind": "mlp"}, "train": {"epochs": EPOCHS}}
    return SearchPlan(given=given, tune={**({"space": space} if space else {}), **tune})


def result_of(value: float, epochs: int = EPOCHS, was_pruned: bool = False) -> TrialResult:
    return TrialResult(value, {"auc": value}, 100, epochs, epochs, was_pruned, 0.5)


def quality(values: dict[str, Any]) -> float:
    """Best at a rate of 0.01 and little dropout."""
    rate = values.get("train.learning_rate", 1e-3)
    return 1 - abs(math.log10(rate) + 2) / 4 - values.get("model.dropout", 0.0) / 4


def run_trials(study: Study, count: int | None = None, reports: bool = False) -> int:
    """Runs trials whose curves rise to their quality; returns how many epochs they took.

    To report each epoch takes the disk's time.
    """
    epochs = done = 0
    while count is None or done < count:
        if (proposal := study.ask("one")) is None:
            break
        end, was_pruned = quality(proposal.values), False
        for epoch in range(1 if reports else EPOCHS, EPOCHS + 1):
            if reports and (
                was_pruned := study.report(proposal.number, epoch, end * (1 - 0.5**epoch))
            ):
                break
        epochs += epoch
        study.finish(proposal.number, result_of(end, epoch, was_pruned))
        done += 1
    return epochs


@pytest.mark.slow
def test_trials_depend_on_the_seed(tmp_path: Path) -> None:
    found = []
    for name, seed in (("first", 42), ("second", 42), ("third", 7)):
        plan = make_plan(trials=12)
        plan.given["train"]["seed"] = seed
        study = Study(make(tmp_path / name), plan)
        run_trials(study)
        found.append([(trial.values, trial.value) for trial in study.trials()])
    assert found[0] == found[1] != found[2]
    assert len(found[0]) == 12


@pytest.mark.slow
def test_reopened_study_proposes_the_same_trials(tmp_path: Path) -> None:
    plan = make_plan(trials=14)
    whole = Study(make(tmp_path / "whole"), plan)
    run_trials(whole)
    for done in (3, 4, 7):
        run_trials(Study(make(tmp_path / "parts"), plan), done)
    parts = Study(make(tmp_path / "parts"), plan)
    assert parts.ask("one") is None
    assert [t.values for t in parts.trials()] == [t.values for t in whole.trials()]


def test_interrupted_trial_is_resumed_under_its_number(tmp_path: Path) -> None:
    plan = make_plan(trials=2)
    killed = Study(make(tmp_path), plan)
    begun = killed.ask("one")
    assert begun is not None
    killed.report(begun.number, 1, 0.5)
    study = Study(make(tmp_path), plan)
    assert study.interrupted() == [0]
    assert study.reopen(0, "two") == begun
    assert not study.report(0, 1, 0.5), "an epoch that is reported twice counts once"
    study.finish(0, result_of(0.9))
    assert study.interrupted() == []
    run_trials(study)
    assert [trial.number for trial in study.trials()] == [0, 1]


def test_trial_fails_after_too_many_interruptions(tmp_path: Path) -> None:
    plan = make_plan(trials=2)
    assert Study(make(tmp_path), plan).ask("one")
    for _ in range(MAX_ATTEMPTS - 1):
        assert Study(make(tmp_path), plan).reopen(0, "one")
    study = Study(make(tmp_path), plan)
    assert study.reopen(0, "one") is None
    assert str(MAX_ATTEMPTS) in str(study.trials()[0].cause)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kept",
    [
        0.7,
    ],
)
def test_truncated_journal_is_repaired(tmp_path: Path, kept: float) -> None:
    plan = make_plan(trials=8)
    run_trials(Study(make(tmp_path), plan), 5)
    journal = tmp_path / JOURNAL
    content = journal.read_bytes()
    journal.write_bytes(content[: int(len(content) * kept)])
    study = Study(make(tmp_path), plan)
    for number in study.interrupted():
        assert study.reopen(number, "two")
        study.finish(number, result_of(0.5))
    run_trials(study)
    assert [trial.number for trial in study.trials()] == list(range(8))
    assert all(trial.has_ended for trial in study.trials())


def test_only_half_lines_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for content, left in ((b"", b""), (b"a\n", b"a\n"), (b"a\nb", b"a\n"), (b"half", b"")):
        path.write_bytes(content)
        cut_half_line(str(path))
        assert path.read_bytes() == left


def test_study_of_another_space_is_refused(tmp_path: Path) -> None:
    Study(make(tmp_path), make_plan(trials=2))
    Study(make(tmp_path), make_plan(trials=9, parallel=2, timeout="5m"))
    narrower = {**SPACE, "model.dropout": {"float": [0.0, 0.3]}}
    with pytest.raises(ConfigError, match=rf"{tmp_path} .*model\.dropout"):
        Study(make(tmp_path), make_plan(narrower))


def test_grid_has_every_combination_once(tmp_path: Path) -> None:
    space = {
        "model.kind": {"choice": ["mlp", "trees"]},
        "model.max_depth": {"int": [2, 4]},
        "train.batch_size": {"choice": [16, 32]},
    }
    study = Study(make(tmp_path), make_plan(space, algorithm="grid"))
    run_trials(study)
    assert [trial.values for trial in study.trials()] == [
        {"model.kind": "mlp", "train.batch_size": 16},
        {"model.kind": "mlp", "train.batch_size": 32},
        *({"model.kind": "trees", "model.max_depth": depth} for depth in (2, 3, 4)),
    ]


def test_automatic_search_begins_with_the_config_and_other_kinds(
    tmp_path: Path,
) -> None:
    study = Study(make(tmp_path), make_plan(None, trials=6))
    run_trials(study)
    values = [trial.values for trial in study.trials()]
    assert values[:3] == [{}, {"model.kind": "tabular"}, {"model.kind": "trees"}]
    assert all(len(given) > 1 for given in values[3:])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["tpe", "hyperband"])
def test_pruning_needs_fewer_epochs_for_an_equal_trial(tmp_path: Path, algorithm: str) -> None:
    found = {}
    for name, tune in (("all", {"prune": False}), ("pruned", {"algorithm": algorithm})):
        plan = make_plan(trials=24, **tune)
        study = Study(make(tmp_path / name), plan)
        epochs = run_trials(study, reports=name == "pruned")
        best = best_of(study.trials(), plan.objective)
        assert best is not None
        found[name] = epochs, best.value
    assert found["all"][0] == 24 * EPOCHS
    assert found["pruned"][0] <= 0.6 * found["all"][0]
    assert found["pruned"][1] == pytest.approx(found["all"][1], abs=0.05)


def test_failed_and_stopped_trials_are_ranked_last(tmp_path: Path) -> None:
    plan = make_plan(trials=5)
    study = Study(make(tmp_path), plan)
    ends: list[Callable[[int], None]] = [
        lambda number: study.fail(number, "trial 0: it diverged"),
        lambda number: study.finish(number, result_of(0.7)),
        lambda number: study.stop(number),
        lambda number: study.finish(number, result_of(0.8)),
        lambda number: study.finish(number, result_of(0.8)),
    ]
    for end in ends:
        proposal = study.ask("one")
        assert proposal is not None
        end(proposal.number)
    trials = study.trials()
    assert [trial.state for trial in trials] == [
        TrialState.FAILED,
        TrialState.DONE,
        TrialState.STOPPED,
        TrialState.DONE,
        TrialState.DONE,
    ]
    assert trials[0].cause == "trial 0: it diverged"
    assert [trial.number for trial in ranked(trials, plan.objective)] == [3, 4, 1, 0, 2]
    leaderboard = summarize(trials, plan.objective, is_automatic=False)
    assert (leaderboard["best"], leaderboard["values"]) == (3, trials[3].values)
    assert leaderboard["epochs"] == 3 * EPOCHS


def make(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    return str(folder)


def test_members_of_an_ensemble_are_searched_and_joined(tmp_path: Path) -> None:
    model = {"kind": "ensemble", "members": ["boosted", "extra", "linear"]}
    plan = SearchPlan(given={**GIVEN, "model": model}, tune={"auto": True, "trials": 7})
    study = Study(make(tmp_path), plan)
    tried = []
    for number in range(7):
        proposal = study.ask("one")
        assert proposal is not None
        tried.append(proposal.values.get("model.members"))
        counts = {"boosted": 6, "extra": 3}
        assert len(proposal.values) == (counts[tried[-1][0]] if number else 0)
        plan.settings(proposal.values)
        result = replace(result_of(0.9 + number / 100), weights={"extra": 0.9, "linear": 0.1})
        study.finish(number, result)
    assert study.ask("one") is None
    assert tried[0] is None, "the config"
    assert tried[1:].count(["extra"]) == 5
    records = study.trials()
    assert choose(records, plan.objective, True, searches_members=True) == records[0]
    study.join({"model.max_depth": 3}, result_of(0.8))
    *_, joined = Study(make(tmp_path), plan).trials()
    assert (joined.number, joined.is_joined) == (7, True)
    leaderboard = summarize(study.trials(), plan.objective, True, searches_members=True)
    assert (leaderboard["best"], leaderboard["values"]) == (7, {"model.max_depth": 3})
