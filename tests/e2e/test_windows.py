"""Runs on windows of spans: what is read again, what is left out, and what stops."""

from __future__ import annotations

import csv
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import Project

NAME = "spans"
CONFIG = """
name: spans
data: {format: csv, path: "days/{SPAN}/*.csv"}
task: binary
model: {kind: mlp, hidden_units: [8]}
train: {epochs: 2}
evaluate: {metrics: [accuracy]}
schedule:
  on_new_data: true
  window: {last: 3}
  missing_span: skip
  warm_start: true
drift:
  columns: {price plan: {infinity_norm: 0.3}}
  on_drift: fail
"""


def write_span(folder: Path, number: int, gold: float = 0.5, rows: int = 200) -> None:
    """A span of customers, of whom some part has the plan `gold`; written an hour ago."""
    generator = random.Random(number)  # noqa: S311
    path = folder / "days" / str(number) / "customers.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "price plan", "label"])
        for _ in range(rows):
            age = generator.uniform(20, 80)
            plan = "gold" if generator.random() < gold else "basic"
            writer.writerow([f"{age:.1f}", plan, int(age > 50)])
    an_hour_ago = path.stat().st_mtime - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))


class Runs:
    """The runs of a project, each with what it said."""

    def __init__(self, project: Project) -> None:
        self.project = project
        (project.folder / "spans.yaml").write_text(CONFIG)

    def run(self, *arguments: str) -> tuple[int, str, dict[str, Any]]:
        """The exit code, what was said, and the summary."""
        done = self.project.scopeline("run", "--config", "spans.yaml", *arguments)
        return done.returncode, done.stdout + done.stderr, self.project.summary(NAME)

    def history(self, kind: str) -> list[dict[str, Any]]:
        """The ledger's events of a kind."""
        done = self.project.scopeline("history", "--config", "spans.yaml", "--json", "--kind", kind)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))


@pytest.fixture(scope="module")
def runs(project: Project) -> Runs:
    """Spans 1 to 3, of which the second holds no row, have been trained on."""
    for number in (1, 3):
        write_span(project.folder, number)
    write_span(project.folder, 2, rows=0)
    runs = Runs(project)
    code, said, _ = runs.run()
    assert code == 0, said
    return runs


def test_a_span_without_rows_is_left_out(runs: Runs) -> None:
    (event,) = runs.history("unusable span")
    assert event["details"]["span"] == 2
    assert "customers.csv" in event["message"]
    (started,) = runs.history("started")
    assert started["details"]["window"] == [1, 2, 3]
    assert runs.project.summary(NAME)["training"]["examples"]["train"] < 2 * 200


def test_a_plan_of_the_same_window_runs_nothing(runs: Runs) -> None:
    done = runs.project.scopeline("plan", "--config", "spans.yaml")
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stdout, done.stdout


def test_an_earlier_window_can_be_asked_for(runs: Runs) -> None:
    done = runs.project.scopeline("run", "--config", "spans.yaml", "--through", "7")
    assert done.returncode == 2
    assert "there is no span 7 to train on" in done.stderr
    done = runs.project.scopeline("run", "--config", "spans.yaml", "--through", "May")
    assert done.returncode == 2
    assert "--through May: the spans at data.path are a number" in done.stderr


def test_drift_stops_the_run_before_anything_is_learnt(runs: Runs) -> None:
    write_span(runs.project.folder, 4, gold=1.0)
    code, said, summary = runs.run("--validate-only")
    assert code == 2
    assert "price plan" in said
    assert summary["status"] == "unusable"
    assert [c["name"] for c in summary["components"]][-1] == "ExampleValidator"


def test_drift_can_be_a_warning(runs: Runs) -> None:
    write_span(runs.project.folder, 4, gold=1.0)
    code, said, summary = runs.run("--validate-only", "--set", "drift.on_drift=warn")
    assert code == 0
    assert summary["status"] == "validated"
    assert "price plan" in summary["drift"][0]
    assert "validated: the data was read and checked" in said
    assert runs.history("drift")[-1]["details"]["span"] == 4
