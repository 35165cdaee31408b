"""New data against the schema of the first: what stops a run, and what only warns."""

from __future__ import annotations

import csv
import random
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.project import ROOT, Project

pytestmark = pytest.mark.slow

CONFIG = """
name: fruit
data: {format: csv, path: fruit.csv, label: kind, splits: {train: 3, eval: 1}}
task: multiclass
model: {kind: mlp, hidden_units: [8]}
train: {epochs: 5, batch_size: 16, learning_rate: 0.01}
certificate: {enabled: false}
"""
COLUMNS = ("weight", "colour", "kind")


def write(folder: Path, rows: Iterable[tuple], columns: Iterable[str] = COLUMNS) -> None:
    with (folder / "fruit.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def fruit(count: int = 400, colours: str = "red green") -> list[tuple]:
    chance = random.Random(3)  # noqa: S311 - no secret
    rows = []
    for _ in range(count):
        kind = chance.choice(["apple", "pear"])
        weight = chance.gauss(150 if kind == "apple" else 220, 20)
        rows.append((round(weight), chance.choice(colours.split()), kind))
    return rows


@pytest.fixture(scope="module")
def trained(project: Project) -> Project:
    """The first data: its schema is kept."""
    (project.folder / "fruit.yaml").write_text(CONFIG)
    write(project.folder, fruit())
    done = project.scopeline("run", "--config", "fruit.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_python_on_the_data_page_asks_the_model(trained: Project) -> None:
    page = (ROOT / "docs" / "your-data.md").read_text()
    *_, code = re.findall(r"```python\n(.*?)```", page, re.S)
    (version,) = trained.versions("fruit")
    names = {"churn": "fruit", "<version>": version, "age": "weight", "plan": "colour"}
    for name, ours in names.items():
        code = code.replace(name, ours)
    (trained.folder / "ask.py").write_text(code)
    done = warm.run([sys.executable, "ask.py"], cwd=trained.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'weight': TensorSpec(shape=<unknown>, dtype=tf.float32" in done.stdout


def test_unknown_class_stops_the_run(trained: Project) -> None:
    write(trained.folder, [*fruit(), *[(999, "red", "melon")] * 30])
    done = trained.scopeline("run", "--config", "fruit.yaml")
    assert done.returncode == 2
    summary = trained.summary("fruit")
    assert summary["status"] == "unusable"
    assert summary["error"]["component"] == "ExampleValidator"
    message = summary["error"]["message"]
    assert "the data contradicts the schema" in message
    assert "kind: expected one of 'apple', 'pear'; found 'melon' in 30 of 430 rows" in message
    assert f"first in row 402 of {trained.folder / 'fruit.csv'} ('melon')" in message
    assert "ExampleValidator failed: the data contradicts the schema" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_mistyped_column_stops_the_run(trained: Project) -> None:
    write(trained.folder, [("heavy" if w > 180 else "light", c, k) for w, c, k in fruit()])
    done = trained.scopeline("run", "--config", "fruit.yaml")
    assert done.returncode == 2
    assert "train and eval splits, weight: " in done.stdout
    assert "on_anomaly: warn" in done.stdout
    kept = trained.output / "fruit" / "schema.pbtxt"
    before = kept.read_text()
    assert trained.scopeline("schema", "accept", "--config", "fruit.yaml").returncode == 0
    done = trained.scopeline("run", "--config", "fruit.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the model in service cannot read this data" in done.stdout
    kept.write_text(before)


def test_new_category_in_a_feature_warns(trained: Project) -> None:
    write(trained.folder, fruit(colours="red green blue"))
    done = trained.scopeline("run", "--config", "fruit.yaml", "--validate-only")
    summary = trained.summary("fruit")
    assert done.returncode == 0, done.stdout
    assert any("colour" in anomaly and "blue" in anomaly for anomaly in summary["anomalies"])
    assert "warning: " in done.stdout
    done = trained.scopeline("schema", "accept", "--config", "fruit.yaml", "--column", "colour")
    assert '+  value: "blue"' in done.stdout, done.stdout + done.stderr
    done = trained.scopeline("run", "--config", "fruit.yaml", "--validate-only")
    assert trained.summary("fruit")["anomalies"] == []
