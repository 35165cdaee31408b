"""A table through every component, with a search, two members and a variant of the model."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.project import Project

pytestmark = pytest.mark.proof

COMPONENTS = [
    "ExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "Transform",
    "Tuner",
    "Trainer",
    "Evaluator",
    "InfraValidator",
    "Optimizer",
    "Pusher",
]
ROWS = 1200
CONFIG: dict[str, Any] = {
    "name": "loans",
    "data": {"format": "csv", "path": "loans.csv", "label": "repaid"},
    "task": "binary",
    "model": {"kind": "mlp", "hidden_units": [16]},
    "train": {"epochs": 4, "batch_size": 32, "learning_rate": 0.01},
    "tune": {"trials": 2, "space": {"train.learning_rate": {"choice": [0.005, 0.02]}}},
    "evaluate": {
        "metrics": ["auc", "accuracy"],
        "slices": ["purpose"],
        "thresholds": {"auc": {"min": 0.8}},
    },
    "optimize": {"variants": ["float"], "required": True},
}


def make_rows(count: int) -> list[dict[str, Any]]:
    """Loans that are repaid if the income is high, or for a car; a few incomes are missing."""
    generator = random.Random(5)  # noqa: S311
    rows = []
    for number in range(count):
        income = generator.uniform(1000, 9000)
        purpose = generator.choice(["car", "house", "trip"])
        repaid = income > 5000 or (purpose == "car" and income > 2500)
        rows.append(
            {
                "number": f"L{number:05}",
                "income": "" if number % 17 == 0 else f"{income:.2f}",
                "purpose": purpose,
                "date": f"2024-{number % 12 + 1:02}-{number % 28 + 1:02}",
                "repaid": "yes" if repaid != (generator.random() < 0.02) else "no",
            }
        )
    return rows


@pytest.fixture(scope="module")
def trained(project: Project) -> Project:
    rows = make_rows(ROWS)
    with (project.folder / "loans.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (project.folder / "loans.yaml").write_text(yaml.safe_dump(CONFIG))
    done = project.scopeline("run", "--config", "loans.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_every_component_runs_to_a_push(trained: Project) -> None:
    summary = trained.summary("loans")
    assert [c["name"] for c in summary["components"]] == COMPONENTS
    assert set(trained.states("loans").values()) == {"ran"}
    assert (summary["status"], len(trained.versions("loans"))) == ("pushed", 1)
    assert summary["metrics"]["auc"]["value"] >= 0.9
    splits = summary["examples"]
    assert sum(splits.values()) == ROWS
    assert splits["eval"] / ROWS == pytest.approx(0.2, abs=0.05)
    assert summary["training"]["examples"]["train"] == splits["train"]


def test_types_are_inferred(trained: Project) -> None:
    columns = trained.summary("loans")["columns"]
    types = {name: column["settings"]["type"] for name, column in columns.items()}
    assert types == {
        "number": "ignore",
        "income": "numeric",
        "purpose": "categorical",
        "date": "date",
    }


def test_the_search_chooses_the_best_trial_for_the_training(trained: Project) -> None:
    tuning = trained.summary("loans")["tuning"]
    assert len(tuning["trials"]) == 2
    best = max(tuning["trials"], key=lambda trial: trial["value"])
    assert tuning["best"] == best["number"]
    assert tuning["values"] == best["values"]


def test_slices_add_up_and_the_variant_is_accepted(trained: Project) -> None:
    summary = trained.summary("loans")
    slices = summary["slices"]
    assert slices.keys() == {f"purpose={one}" for one in ("car", "house", "trip")}
    counted = sum(metrics["example_count"] for metrics in slices.values())
    assert counted == summary["examples"]["eval"]
    (variant,) = summary["variants"]["variants"]
    assert (variant["name"], variant["accepted"]) == ("float", True)
    auc = summary["metrics"]["auc"]["value"]
    assert variant["metrics"]["auc"] == pytest.approx(auc, abs=1e-4)
    assert (Path(summary["pushed"]) / "variants" / "float").is_dir()
    assert summary["certificate"]["failure"] == ""


def test_a_file_and_its_variant_are_predicted_and_measured_alike(
    trained: Project, tmp_path: Path
) -> None:
    answers, table = tmp_path / "answers.csv", trained.folder / "loans.csv"
    given = ("--config", "loans.yaml", "--input", table)
    scores = []
    for variant in ([], ["--variant", "float"]):
        done = trained.scopeline("predict", *given, "--output", answers, *variant)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = list(csv.DictReader(answers.open()))
        scores.append([float(row["score_yes"]) for row in rows])
        answers.unlink()
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    labels = [row["repaid"] for row in csv.DictReader(table.open())]
    right = sum(row["class"] == label for row, label in zip(rows, labels, strict=True)) / ROWS
    measured = trained.scopeline("evaluate", *given)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    header, whole, *slices = measured.stdout.splitlines()[1:]
    found = dict(zip(header.split()[1:], whole.split()[1:], strict=True))
    assert float(found["accuracy"]) == pytest.approx(right, abs=1e-4)
    assert sum(line.startswith("purpose=") for line in slices) == 3


def test_unknown_row_and_missing_value_are_predicted(trained: Project) -> None:
    row = json.dumps({"income": None, "purpose": "yacht", "date": "2024-05-01"})
    done = trained.scopeline("predict", "--config", "loans.yaml", "--row", row)
    assert done.returncode == 0, done.stderr
    assert "yes" in done.stdout


def test_a_column_that_the_data_lacks_is_refused(trained: Project) -> None:
    done = trained.scopeline("run", "--config", "loans.yaml", "--set", "evaluate.slices=[purpos]")
    assert done.returncode == 2
    assert "evaluate.slices.0" in done.stdout
    assert "purpos" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
