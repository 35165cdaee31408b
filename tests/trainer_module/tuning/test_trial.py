"""Trials of a real search space on transformed data, one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.trainer_data import Transformed
from trainer_module.errors import TrainingError
from trainer_module.measures import measures_of
from trainer_module.runtime import WorkerContext
from trainer_module.settings.tasks import SUPERVISED_TASKS, supervised_class
from trainer_module.tuning.members import read_outputs, write_outputs
from trainer_module.tuning.plan import (
    MemberTrial,
    Objective,
    SearchPlan,
    TrialResult,
    find_objective,
    objectives_of,
)
from trainer_module.tuning.trial import BACKUP_FOLDER, TrialRunner

Run = Callable[..., TrialResult]
QUICK = {"train.epochs": 3, "train.batch_size": 64}


def make_plan(data: Transformed) -> SearchPlan:
    given = data.settings.model_dump(mode="json", exclude_unset=True)
    return SearchPlan(given=given, tune={"space": {"train.epochs": {"int": [1, 9]}}})


def make_runner(trips: Transformed, objective: Objective) -> TrialRunner:
    """Of trips, of which there is no eval split to read."""
    files = trips.files("train")
    reported = {"train_files": files, "eval_files": files, "custom_config": {}}
    arguments = SimpleNamespace(**reported, transform_graph_path=str(trips.root / "graph"))
    return TrialRunner(arguments, WorkerContext(), objective, has_own_split=False)


@pytest.fixture(scope="module")
def runner(trips: Transformed) -> TrialRunner:
    return make_runner(trips, make_plan(trips).objective)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(scope="module")
def run(runner: TrialRunner, trips: Transformed, folder: Path) -> Run:
    def run(name: str, report: Any = lambda *_: False, **values: Any) -> TrialResult:
        paths = QUICK | {path.replace("__", "."): value for path, value in values.items()}
        if paths.get("model.kind") == "trees":
            paths = {k: v for k, v in paths.items() if not k.startswith("train.")}
        settings = make_plan(trips).settings(paths)
        return runner.run(settings, paths, str(folder / name), report)

    return run


@pytest.fixture(scope="module")
def first(run: Run) -> TrialResult:
    return run("first")


@pytest.mark.slow
def test_trials_are_reproducible_within_a_process(run: Run, first: TrialResult) -> None:
    other = run("other", model__hidden_units=[32, 8])
    again = run("again")
    assert (first.value, first.metrics) == (again.value, again.metrics)
    assert first.metrics != other.metrics
    assert first.epochs == 3
    assert first.value == first.metrics["auc"]


@pytest.mark.slow
def test_pruned_trial_stays_pruned(run: Run, folder: Path) -> None:
    reported: list[int] = []

    def report(epoch: int, value: float) -> bool:
        assert 0 <= value <= 1
        reported.append(epoch)
        return epoch == 2

    pruned = run("pruned", report)
    assert pruned.was_pruned
    assert (pruned.epochs, reported) == (2, [1, 2])
    assert (folder / "pruned" / BACKUP_FOLDER).exists()
    again = run("pruned", report)
    assert (again.was_pruned, again.epochs, again.value) == (True, 2, pruned.value)
    assert reported == [1, 2], "what was done before a kill is not done again"


@pytest.mark.slow
def test_interrupted_trial_resumes_at_its_epoch(run: Run, first: TrialResult) -> None:
    def interrupt(epoch: int, value: float) -> bool:
        if epoch == 2:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run("killed", interrupt)
    reported: list[int] = []
    went_on = run("killed", lambda epoch, _: bool(reported.append(epoch)))
    assert reported == [2, 3]
    assert went_on.metrics == first.metrics


@pytest.mark.slow
def test_members_are_trained_once_and_those_of_all_trials_joined(
    trips: Transformed, folder: Path
) -> None:
    model = {"kind": "ensemble", "members": ["boosted", "extra", "tabular"], "trees": 20}
    given = trips.settings.model_dump(mode="json", exclude_unset=True)
    given = {**given, "model": model, "train": {"epochs": 3, "batch_size": 64}}
    plan = SearchPlan(given=given, tune={"auto": True})
    values: list[dict[str, Any]] = [
        {},
        {"model.members": ["boosted"], "model.max_depth": 4},
        {"model.members": ["extra"], "model.extra.min_examples": 3},
        {"model.members": ["tabular"], "model.dropout": 0.3},
    ]
    reported: list[int] = []
    trials, results = [], []
    runner = make_runner(trips, find_objective(trips.settings.target, "val_balanced_accuracy"))
    for number, one in enumerate(values):
        path = folder / f"members {number}"
        path.mkdir()
        report = lambda epoch, _: bool(reported.append(epoch))  # noqa: E731
        settings = plan.settings(one)
        results.append(runner.run(settings, one, str(path), report, is_of_members=True))
        trials.append(MemberTrial(one, str(path)))
    assert reported == [1, 2, 3] * 2, "the network's epochs, each once"
    assert [result.epochs for result in results] == [3, 0, 0, 3]
    assert {*results[0].weights} <= {*model["members"]}
    assert sum(results[0].weights.values()) == pytest.approx(1)
    assert all(result.value == result.metrics["balanced_accuracy"] for result in results)
    assert all(result.metrics["auc"] > 0.6 for result in results)
    outputs = [read_outputs(trial.folder) for trial in trials]
    assert [set(one) for one in outputs] == [
        {*model["members"]},
        {"boosted"},
        {"extra"},
        {"tabular"},
    ]
    joined, result = runner.join(plan.untuned, trials, str(folder))
    assert joined.items() <= {k: v for one in values for k, v in one.items()}.items()
    assert "model.members" not in joined
    assert result.metrics["auc"] > 0.6
    # A member with worse settings in the config: the search finds better ones.
    write_outputs(trials[0].folder, {name: one * 0 + 0.5 for name, one in outputs[0].items()})
    better, found = runner.join(plan.untuned, trials, str(folder))
    assert better
    assert better.items() <= {k: v for one in values for k, v in one.items()}.items()
    assert found.metrics["auc"] > 0.9


@pytest.mark.slow
def test_diverging_trial_fails(run: Run) -> None:
    with pytest.raises(TrainingError, match="training diverged"):
        run("diverges", train__learning_rate=1e30)


@pytest.mark.slow
def test_conflicting_values_are_refused(trips: Transformed) -> None:
    values = {"train.epochs": 2, "train.learning_rate": {"schedule": "cosine", "initial": 0.1}}
    plan = make_plan(trips)
    assert plan.settings(values).train.epochs == 2
    values["train.learning_rate"] = {**values["train.learning_rate"], "warmup_epochs": 2}
    with pytest.raises(TrainingError, match=r"epochs \(2\)"):
        plan.settings(values)


@pytest.mark.parametrize("kind", SUPERVISED_TASKS)
def test_objectives_are_the_shown_metrics(kind: str) -> None:
    options = {"order": ["low", "mid", "high"]} if kind == "ordinal" else {}
    task = supervised_class(kind).model_validate({"kind": kind, **options})
    shown = {f"val_{metric.name}" for metric in task.make_metrics()}
    others = {f"val_{name}" for name in measures_of(task)}
    assert set(objectives_of(task)) == shown | others | {"val_loss"}
    assert find_objective(task, None).name == task.usual_objective
    assert find_objective(task, "val_loss").direction == "minimize"
    for name in shown:
        is_error = name in ("val_mae", "val_rmse")
        assert find_objective(task, name).higher_is_better is not is_error
