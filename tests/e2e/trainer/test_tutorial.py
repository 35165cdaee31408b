"""TensorFlow's guide to distributed training, as our page has it: followed to its end."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from tests.support import warm
from tests.support.project import ROOT, Project

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "tutorial.md"
TRAIN = ["run", "--config", "guide.yaml", "--set", "certificate=false"]
EVALUATE = ["evaluate", "--config", "guide.yaml"]
RATES = [0.01, 0.01, 0.01, 0.001, 0.001, 0.0001]


@pytest.fixture(scope="module")
def trained(project: Project) -> Project:
    for name, text in re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE.read_text(), re.S):
        (project.folder / name).write_text(text)
    assert project.scopeline(*EVALUATE).returncode == 2, "there is nothing to restore yet"
    done = project.scopeline(*TRAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_learning_rate_of_each_epoch_is_logged(trained: Project) -> None:
    (log,) = (trained.output / "guide" / "runs").glob("*/run.log")
    rates = re.findall(r"epoch \d: .*, learning_rate (\S+)", log.read_text())
    assert [float(rate) for rate in rates] == RATES
    assert trained.summary("guide")["training"]["history"]["learning_rate"] == pytest.approx(RATES)


def test_model_evaluates_the_same_with_and_without_the_scope(trained: Project) -> None:
    done = warm.run(
        [sys.executable, "guide.py"], cwd=trained.folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    alone, replicated = (ast.literal_eval(found) for found in re.findall(r"\{.*\}", done.stdout))
    assert alone == pytest.approx(replicated, rel=1e-4)
    training = trained.summary("guide")["training"]
    best = training["history"]["val_loss"][training["best_epoch"] - 1]
    assert alone["loss"] == pytest.approx(best, rel=1e-4)
    assert re.search(r"[89]\d% of 100 pictures are right", done.stdout)


def test_checkpoint_is_evaluated_and_gone_on_from(trained: Project) -> None:
    training = trained.summary("guide")["training"]
    before, steps = training["history"], training["steps"]
    shown = trained.scopeline(*EVALUATE, "--set", "model.filters=[16]")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    output = "note: --set model.filters changes nothing: the checkpoint is evaluated with the"
    assert output in shown.stderr
    assert f"guide, ckpt-{steps} after epoch 6, on 355 examples of the eval split" in shown.stdout
    accuracy = re.search(r"accuracy +(\S+)", shown.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) == pytest.approx(before["val_accuracy"][-1], abs=1e-4)
    absent = trained.scopeline(*EVALUATE, "--checkpoint", "1")
    assert absent.returncode == 2
    assert "kept no checkpoint of this epoch; expected 4, 5, 6 or latest" in absent.stderr

    longer = trained.scopeline(*TRAIN, "--set", "train.epochs=7")
    assert "note: training continued from epoch 6 of an earlier run" in longer.stdout
    training = trained.summary("guide")["training"]
    assert training["resumed_at_step"] == steps
    assert training["history"]["loss"][:6] == before["loss"]
    assert "after epoch 7" in trained.scopeline(*EVALUATE).stdout
