"""Trees from a table to a pushed model, which plain TensorFlow serves."""

from __future__ import annotations

import csv
import random
import time
from typing import Any

import pytest

from tests.support.killing import children, survivors
from tests.support.project import Project, answered_alone, wait_until

pytestmark = pytest.mark.slow

ROWS = 500
CONFIG = """
name: loans
data: {format: csv, path: loans.csv, label: outcome}
task: binary
features: {area: {type: categorical}}
model: {kind: trees, trees: 60}
train: {class_weights: balanced}
evaluate: {metrics: [auc], thresholds: {auc: {min: 0.9}}, folds: 2}
"""
PLAIN = """
import json, sys
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
columns = json.loads(sys.stdin.read())
specs = model.signatures["serving_raw"].structured_input_signature[1]
given = {name: tf.constant(columns[name], specs[name].dtype) for name in specs}
scores = model.signatures["serving_raw"](**given)["scores"].numpy().tolist()
ours = sorted({"ydf", "trainer_module", "tensorflow_transform"} & set(sys.modules))
print(json.dumps([scores, ours]))
"""


def make_rows() -> list[dict[str, Any]]:
    generator = random.Random(7)  # noqa: S311
    rows = []
    for _ in range(ROWS):
        income, area = generator.gauss(50, 20), generator.randint(1, 9)
        purpose = generator.choice(["car", "house", "travel"])
        bad = income < 40 or (purpose == "travel" and area % 3 == 0)
        rows.append(
            {
                "income": round(income, 2),
                "age": generator.choice([generator.randint(18, 80), ""]),
                "area": area,
                "purpose": purpose,
                "outcome": "default" if bad else "paid",
            }
        )
    return rows


@pytest.fixture(scope="module")
def trained(project: Project) -> Project:
    (project.folder / "loans.yaml").write_text(CONFIG)
    rows = make_rows()
    with (project.folder / "loans.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    done = project.scopeline("run", "--config", "loans.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (project.folder / "stdout").write_text(done.stdout)
    return project


def test_trees_are_blessed_and_pushed(trained: Project) -> None:
    summary = trained.summary("loans")
    assert len(trained.versions("loans")) == 1
    assert summary["metrics"]["auc"]["value"] > 0.9
    training = summary["training"]
    assert training["model"] == "trees"
    assert next(iter(training["importances"])) == "income"
    assert len(training["history"]["val_loss"]) == training["epochs"]
    assert training["folds"]["auc"]["mean"] > 0.9
    assert len(training["folds"]["auc"]["values"]) == 2
    shown = (trained.folder / "stdout").read_text()
    assert f"{training['trees']:,} trees; default, 1 replica" in shown
    assert "trees: most important: income " in shown


def test_plain_tensorflow_serves_them(trained: Project) -> None:
    (version,) = trained.versions("loans")
    path = trained.output / "loans/serving/loans" / version
    rows = make_rows()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["age"] = [age or float("nan") for age in columns["age"]]
    columns["area"][0], columns["purpose"][0] = 77, "never seen"
    scores, ours = answered_alone(PLAIN, path, columns)
    assert ours == []
    right = [
        (row["outcome"] == "paid") == (paid > 0.5)
        for row, (_, paid) in zip(rows, scores, strict=True)
    ]
    assert sum(right) > 0.93 * ROWS


def test_a_growth_that_was_killed_begins_anew_beside_a_model_in_service(trained: Project) -> None:
    # None stops early, so that there is time to kill it in.
    longer = ("--set", "model.trees=600", "--set", "train.early_stopping={patience: 600}")
    command = ("run", "--config", "loans.yaml", *longer)
    before, runs = trained.versions("loans"), trained.output / "loans/runs"
    earlier = set(runs.glob("*/run.log"))

    def is_growing() -> bool:
        new = set(runs.glob("*/run.log")) - earlier
        return any("forest 1 of 5" in log.read_text(errors="replace") for log in new)

    run = trained.start(*command)
    wait_until(is_growing, run)
    processes = children(run.pid)
    assert processes, run.communicate()
    run.kill()
    run.communicate()
    time.sleep(1)
    assert not survivors(processes)
    assert trained.versions("loans") == before
    done = trained.scopeline(*command)
    summary, versions = trained.summary("loans"), trained.versions("loans")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert trained.states("loans")["Transform"] == "cached"
    assert summary["training"]["trees"] > 5 * 60
    # Compared with the model in service, it is pushed only if it is no worse.
    assert len(versions) == len(before) + summary["blessed"]
    assert summary["metrics"]["auc"]["in_service"] > 0.9
