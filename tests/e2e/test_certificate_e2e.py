"""Runs whose export does not answer as it was trained, and one that takes too much memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.project import Project

pytestmark = pytest.mark.slow

CORRUPTING = """
from pathlib import Path

from trainer_module.trainer import run_fn as train


def run_fn(fn_args):
    train(fn_args)
    for vocabulary in (Path(fn_args.serving_model_dir) / "assets").glob("plan*"):
        vocabulary.write_text("".join(vocabulary.read_text().splitlines(True)[1:]))
"""
CONFIG = """
name: plans
data: {format: csv, path: plans.csv, label: left}
task: binary
model: {kind: mlp, hidden_units: [4]}
train: {epochs: 2, learning_rate: 0.1, run_fn: corrupting.run_fn}
evaluate: {thresholds: {accuracy: {min: 0.1, tolerance: 1}}}
"""
MEND = ("--set", "train.run_fn=null")


@pytest.fixture(scope="module")
def refused(project: Project) -> subprocess.CompletedProcess[str]:
    """A run that loses a line of a vocabulary between the training and the push."""
    rows = (f"{('gold', 'iron', 'tin')[i % 3]},{i % 7},{int(i % 3 == 0)}\n" for i in range(300))
    (project.folder / "plans.csv").write_text("plan,age,left\n" + "".join(rows))
    (project.folder / "corrupting.py").write_text(CORRUPTING)
    (project.folder / "plans.yaml").write_text(CONFIG)
    return project.scopeline("run", "--config", "plans.yaml")


def test_model_that_answers_otherwise_is_not_pushed(
    project: Project, refused: subprocess.CompletedProcess[str]
) -> None:
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "InfraValidator    ran" in refused.stdout
    assert "not blessed, not pushed: serving_default and transform_and_keras" in (refused.stdout)
    summary = project.summary("plans")
    assert (summary["status"], summary["blessed"], summary["pushed"]) == (
        "not_blessed",
        False,
        None,
    )
    certificate = summary["certificate"]
    assert certificate["failure"] == summary["reason"]
    assert certificate["ways"]["rest"]["largest_difference"] > certificate["tolerance"]
    assert certificate["ways"]["rest"]["row"]
    assert project.versions("plans") == []
    history = project.scopeline("history", "--config", "plans.yaml").stdout
    assert "serving_default and transform_and_keras" in history


def test_model_that_was_refused_is_none_to_beat_and_the_next_carries_its_certificate(
    project: Project, refused: subprocess.CompletedProcess[str]
) -> None:
    assert refused.returncode == 3
    done = project.scopeline("run", "--config", "plans.yaml", *MEND)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = project.summary("plans")
    assert summary["metrics"]["accuracy"]["in_service"] is None
    extra = Path(summary["pushed"]) / "assets.extra" / "certificate"
    assert json.loads((extra / "certificate.json").read_text())["failure"] == ""
    assert (extra / "golden.parquet").is_file()


def test_model_that_needs_more_memory_than_allowed_fails(
    project: Project, refused: subprocess.CompletedProcess[str]
) -> None:
    assert refused.returncode == 3
    limit = ("--set", "certificate.memory=0.01")
    done = project.scopeline("run", "--config", "plans.yaml", *MEND, *limit)
    assert done.returncode == 1
    assert "InfraValidator failed: the model needs more than 0.01 GiB to predict" in done.stdout
