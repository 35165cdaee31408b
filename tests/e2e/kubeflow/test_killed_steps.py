"""Containers of Kubeflow that are killed in a search and in a training."""

from __future__ import annotations

import signal
from collections.abc import Iterator
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
