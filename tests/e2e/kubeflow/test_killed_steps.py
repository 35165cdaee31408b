"""Containers of Kubeflow that are killed in a search and in a training, and two runs at once."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.pusher.variants import read_manifest
from tests.support.kubeflow_cluster import (
    ROOT,
    Cluster,
    Run,
    kill_once,
    kubeflow_cluster,
    states,
    summary,
)
from tests.support.project import SMALL

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kubeflow_cluster(tmp_path_factory.mktemp("digits")) as cluster:
        yield cluster


DIGITS = (ROOT / "configs" / "digits.yaml", SMALL, "evaluate.thresholds={accuracy: {min: 0.1}}")
STEPS = (
    "tune={trials: 4, space: {train.batch_size: {choice: [80, 96]}}}",
    "optimize={variants: [float], required: true}",
    "train.epochs=3",
)


@pytest.fixture(scope="module")
def first(digits: Cluster) -> Run:
    """Two epochs of digits; Tuner is killed in a trial, and Trainer in the second epoch."""
    killings = [
        kill_once(digits, "tuner", "trial 1 "),
        kill_once(digits, "trainer", "epoch 2 of 2"),
    ]

    def on_start(*started: Any) -> None:
        for killing in killings:
            killing(*started)

    compiled = digits.compile(*DIGITS, *STEPS)
    return digits.executor(compiled, on_start).run({"epochs": 2})


def test_killed_training_is_resumed_by_its_second_attempt(digits: Cluster, first: Run) -> None:
    trainer = first.tasks["trainer"]
    assert [one.exit_code for one in trainer.attempts] == [-signal.SIGKILL, 0], first.report()
    found = summary(first)
    assert found.training is not None
    assert found.training["resumed_at_step"] > 0
    assert digits.count("Trainer") == 1, "the second attempt goes on with the same execution"


def test_killed_search_is_resumed_and_its_best_values_are_trained(first: Run) -> None:
    assert [one.exit_code for one in first.tasks["tuner"].attempts] == [-signal.SIGKILL, 0]
    assert "resumes after " in first.tasks["tuner"].log
    found = summary(first)
    assert found.training is not None
    assert sorted(trial["number"] for trial in found.tuning["trials"]) == [0, 1, 2, 3]
    assert found.training["global_batch_size"] == found.tuning["values"]["train.batch_size"]


def test_variants_are_pushed_with_the_model(first: Run) -> None:
    found = summary(first)
    (variant,) = found.variants["variants"]
    assert variant["accepted"]
    assert read_manifest(Path(str(found.pushed))).keys() == {"float"}


def test_model_of_an_older_run_is_not_pushed_over_a_newer_one(digits: Cluster, first: Run) -> None:
    """One compares its model with the one in service, and pushes it; an older one does not."""
    # Whichever model is better by chance, both are blessed.
    lenient = "evaluate={ties: newest, thresholds: {accuracy: {min: 0.1, tolerance: 1.0}}}"
    compiled = digits.compile(*DIGITS[:-1], lenient, "certificate=false")
    begun, pushed = threading.Event(), threading.Event()

    def hold_up(task: str, attempt: int, process: subprocess.Popen[bytes]) -> None:
        del attempt, process
        if task == "examplegen":
            begun.set()
        if task == "evaluator":
            assert pushed.wait(300)

    with ThreadPoolExecutor() as threads:
        running = threads.submit(digits.executor(compiled, hold_up).run, {"epochs": 4})
        assert begun.wait(300)
        other = digits.executor(compiled).run({"epochs": 3})
        pushed.set()
        older = running.result()
    assert other.state == "SUCCEEDED", other.report()
    assert older.state == "SUCCEEDED", older.report()
    assert summary(other).status == "pushed"
    late, served = summary(older), Path(str(summary(other).pushed))
    assert (late.status, late.pushed, states(older)["Pusher"]) == ("superseded", None, "skipped")
    assert late.blessed
    assert late.waiting is not None
    assert max(int(version.name) for version in served.parent.iterdir()) == int(served.name)
    steps = states(other)
    assert {steps[name] for name in ("ExampleGen", "SchemaGen", "Transform")} == {"cached"}
    assert steps["Trainer"] == "ran"
    assert summary(other).metrics["accuracy"].in_service == pytest.approx(
        summary(first).metrics["accuracy"].value
    )
