"""Tasks from a YAML to a pushed model: intervals, and counts."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from e2e.conftest import Project

TRAIN = {"epochs": 30, "batch_size": 64, "learning_rate": 0.02}
CONFIG = {
    "data": {"format": "parquet", "path": "visits.parquet", "label": "visits"},
    "model": {"kind": "mlp", "hidden_units": [16]},
    "train": TRAIN,
}


@pytest.fixture(scope="module")
def visits(project: Project) -> Project:
    """A count whose mean and spread grow with the one number that there is."""
    random = np.random.default_rng(1)
    size = random.uniform(0, 3, 1500)
    table = pa.table({"size": size, "visits": random.poisson(np.exp(size))})
    pq.write_table(table, project.folder / "visits.parquet")
    return project


def run(project: Project, name: str, **sections: object) -> dict[str, float]:
    """Runs a pipeline to its end; the metrics of its summary."""
    text = json.dumps({"name": name, **CONFIG, **sections})
    (project.folder / f"{name}.yaml").write_text(text)
    done = project.scopeline("run", "--config", f"{name}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    metrics = project.summary(name)["metrics"]
    return {metric: found["value"] for metric, found in metrics.items()}


def ask(project: Project, name: str, sizes: list[float]) -> dict[str, np.ndarray]:
    """What the pushed model says."""
    import tensorflow as tf

    (version,) = project.versions(name)
    model = tf.saved_model.load(str(project.output / name / "serving" / name / version))
    answers = model.signatures["serving_raw"](size=tf.constant(sizes))
    return {key: value.numpy() for key, value in answers.items()}


def test_an_interval_is_measured_decides_and_is_served(visits: Project) -> None:
    task = {"kind": "regression", "quantiles": [0.1, 0.9]}
    thresholds = {"mse": {"max": 40}, "coverage": {"min": 0.7, "max": 0.92}}
    found = run(visits, "intervals", task=task, evaluate={"thresholds": thresholds})
    assert list(found) == ["mse", "mae", "coverage", "interval_width"]
    served = ask(visits, "intervals", [0.5, 2.8])
    low, high = served["quantiles"].T
    assert np.all(low < high)
    assert (high - low)[1] > 2 * (high - low)[0]
    assert served["value"][1] == pytest.approx(np.exp(2.8), rel=0.3)


def test_a_count_is_measured_by_its_deviance(visits: Project) -> None:
    found = run(visits, "counts", task="count")
    assert list(found) == ["poisson_deviance", "mae"]
    assert found["poisson_deviance"] < 1.4, "that of the true mean is about 1.1"
    assert ask(visits, "counts", [-50.0])["value"][0] >= 0
