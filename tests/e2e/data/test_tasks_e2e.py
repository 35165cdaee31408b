"""Tasks from a YAML to a pushed model: counts, intervals, and classes in order of many features."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.project import Project, answered_alone

pytestmark = pytest.mark.slow

VISITS = {
    "name": "visits",
    "data": {"format": "parquet", "path": "visits.parquet", "label": "visits"},
    "model": {"kind": "mlp", "hidden_units": [16]},
    "train": {"epochs": 30, "batch_size": 64, "learning_rate": 0.02},
}
ORDER = ["low", "mid", "high"]
GRADES: dict[str, Any] = {
    "name": "grades",
    "data": {"format": "parquet", "path": "grades.parquet", "label": "grade"},
    "task": {"kind": "ordinal", "order": ORDER},
    "features": {
        "agent": {"type": "categorical", "hash_buckets": 50},
        "tags": {"type": "categorical", "many": True},
        "wave": {"type": "sequence", "length": 4},
        "side_and_floor": {"type": "cross", "of": ["side", "floor"], "hash_buckets": 40},
        "deposit": {"type": "my_types.Money", "rate": 1.1},
    },
    "train": {"steps": 150},
    "evaluate": {"thresholds": {"accuracy": {"min": 0.8}}},
}
ALONE = """
import json, sys
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
columns = json.loads(sys.stdin.read())
specs = model.signatures["serving_raw"].structured_input_signature[1]
given = {name: tf.constant(columns[name], specs[name].dtype) for name in specs}
served = model.signatures["serving_raw"](**given)
ours = sorted({"my_types", "trainer_module", "tensorflow_transform"} & set(sys.modules))
names = [name.decode() for name in served["class"].numpy()]
print(json.dumps([names, served["scores"].numpy().tolist(), ours]))
"""
ROOT = Path(__file__).parents[3]


def run(project: Project, config: dict[str, Any], **sections: Any) -> dict[str, float]:
    """Runs a pipeline to its end; the metrics of its summary."""
    name = config["name"]
    (project.folder / f"{name}.yaml").write_text(json.dumps({**config, **sections}))
    done = project.scopeline("run", "--config", f"{name}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    summary = project.summary(name)
    assert (summary["status"], summary["blessed"]) == ("pushed", True)
    return {metric: found["value"] for metric, found in summary["metrics"].items()}


def newest(project: Project, name: str) -> Path:
    """What is served of a pipeline."""
    version = max(project.versions(name), key=int)
    return project.output / name / "serving" / name / version


def ask(project: Project, sizes: list[float]) -> dict[str, np.ndarray]:
    """What the pushed model says of visits."""
    import tensorflow as tf

    model = tf.saved_model.load(str(newest(project, "visits")))
    answers = model.signatures["serving_raw"](size=tf.constant(sizes))
    return {key: value.numpy() for key, value in answers.items()}


@pytest.fixture(scope="module")
def visits(project: Project) -> Project:
    """A count whose mean and spread grow with the one number that there is."""
    random = np.random.default_rng(1)
    size = random.uniform(0, 3, 1500)
    table = pa.table({"size": size, "visits": random.poisson(np.exp(size))})
    pq.write_table(table, project.folder / "visits.parquet")
    return project


def test_an_interval_is_measured_decides_and_is_served(visits: Project) -> None:
    """In place of the count that the model in service predicts."""
    task = {"kind": "regression", "quantiles": [0.1, 0.9]}
    thresholds = {"mse": {"max": 40, "tolerance": 20}, "coverage": {"min": 0.7, "max": 0.92}}
    found = run(visits, VISITS, task=task, evaluate={"thresholds": thresholds})
    assert list(found) == ["mse", "mae", "coverage", "interval_width", "rmse", "r2"]
    served = ask(visits, [0.5, 2.8])
    low, high = served["quantiles"].T
    assert np.all(low < high)
    assert (high - low)[1] > 2 * (high - low)[0]
    assert served["value"][1] == pytest.approx(np.exp(2.8), rel=0.3)


def make_grades(rows: int) -> dict[str, list[Any]]:
    """A bit of the grade is in each column, but for the identifier."""
    random = np.random.default_rng(1)
    grades = [int(place) for place in random.integers(0, 3, rows)]

    def hint(grade: int, size: int) -> int:
        """Most often one that only this grade has."""
        return int(random.integers(size)) * 3 + (grade if random.random() < 0.7 else 1)

    return {
        "booking_id": [f"B{1000 + place}" for place in random.permutation(rows)],
        "price": [float(random.normal(50 + 20 * grade, 15)) for grade in grades],
        "arrival": [
            str(date(2024, 1, 1) + timedelta(120 * grade + int(random.integers(120))))
            for grade in grades
        ],
        "returning": [["no", "yes"][hint(grade, 1) > 1] for grade in grades],
        "agent": [f"agent {hint(grade, 9)}" for grade in grades],
        "tags": [[f"t{hint(grade, 2)}" for _ in range(1 + place % 3)] for place, grade in
                 enumerate(grades)],
        "wave": [[float(random.normal(grade)) for _ in range(1 + place % 5)] for place, grade in
                 enumerate(grades)],
        "side": [["east", "west"][place % 2] for place in range(rows)],
        "floor": [f"{hint(grade, 1)}" for grade in grades],
        "deposit": [f"${100 * hint(grade, 1)}" for grade in grades],
        "grade": [ORDER[grade] for grade in grades],
    }  # fmt: skip


@pytest.fixture(scope="module")
def grades(project: Project) -> Project:
    """Trained, with the type of feature that the page on features shows."""
    page = (ROOT / "docs" / "features.md").read_text()
    (project.folder / "my_types.py").write_text(page.split("```python\n")[1].split("```")[0])
    pq.write_table(pa.table(make_grades(600)), project.folder / "grades.parquet")
    found = run(project, GRADES)
    assert list(found) == ["accuracy", "rank_error", "log_loss"]
    return project


def test_each_column_is_of_its_type(grades: Project) -> None:
    summary = grades.summary("grades")
    assert summary["training"]["model"] == "tabular"
    types = {name: column["settings"]["type"] for name, column in summary["columns"].items()}
    assert types | {name: f["type"] for name, f in GRADES["features"].items()} == {
        "booking_id": "ignore",
        "price": "numeric",
        "arrival": "date",
        "returning": "boolean",
        "agent": "categorical",
        "tags": "categorical",
        "wave": "sequence",
        "side": "categorical",
        "floor": "categorical",
        "side_and_floor": "cross",
        "deposit": "my_types.Money",
    }


def test_plain_tensorflow_serves_classes_in_their_order(grades: Project) -> None:
    columns = make_grades(100)
    for name, missing in (("tags", ""), ("wave", float("nan"))):
        widest = max(map(len, columns[name]))
        columns[name] = [v + [missing] * (widest - len(v)) for v in columns[name]]
    named, scores, ours = answered_alone(ALONE, newest(grades, "grades"), columns)
    assert ours == []
    assert np.mean(np.array(named) == columns["grade"]) > 0.8
    assert [ORDER[place] for place in np.argmax(scores, 1)] == named
