"""A user's own Parquet data, model builder and preprocessing, by import path."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from e2e.conftest import Project

CONFIG = """
name: houses
data: {format: parquet, path: houses.parquet, label: price}
task: regression
preprocessing: my_features.preprocessing_fn
model: {kind: my_model.build_model, options: {units: 8}}
train: {epochs: 6, batch_size: 32, learning_rate: 0.05}
evaluate: {metrics: [mse, mae, rmse], thresholds: {mae: {max: 0.5}}}
"""
MODEL = """
import tf_keras


def build_model(problem, settings):
    inputs = problem.make_inputs()
    hidden = tf_keras.layers.Dense(settings.options["units"], "relu")(inputs["area"])
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden))
"""
FEATURES = """
import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs, custom_config):
    area = tf.cast(inputs["area"], tf.float32)
    return {
        "area": tft.scale_to_0_1(tf.reshape(area, [-1, 1])),
        "price": tf.reshape(tf.cast(inputs["price"], tf.float32), [-1, 1]),
    }
"""


@pytest.fixture(scope="module")
def trained(project: Project) -> Project:
    areas = [float(i % 97) for i in range(600)]
    table = pa.table({"area": areas, "price": [area / 50 for area in areas]})
    pq.write_table(table, project.folder / "houses.parquet")
    (project.folder / "houses.yaml").write_text(CONFIG)
    (project.folder / "my_model.py").write_text(MODEL)
    (project.folder / "my_features.py").write_text(FEATURES)
    done = project.scopeline("run", "--config", "houses.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_own_model_learns(trained: Project) -> None:
    metrics = trained.summary("houses")["metrics"]
    assert metrics["mae"]["value"] < 0.5
    assert metrics["rmse"]["value"] ** 2 == pytest.approx(metrics["mse"]["value"], rel=1e-3)


def test_own_model_serves_values(trained: Project) -> None:
    import tensorflow as tf

    (version,) = trained.versions("houses")
    model = tf.saved_model.load(str(trained.output / "houses/serving/houses" / version))
    answer = model.signatures["serving_raw"](area=tf.constant([0.0, 50.0]))
    assert answer["value"].shape == (2,)
    assert answer["value"][1] - answer["value"][0] == pytest.approx(1.0, abs=0.4)


def test_edited_builder_is_not_served_from_cache(trained: Project) -> None:
    own = trained.folder / "my_model.py"
    own.write_text(MODEL.replace('"relu"', '"tanh"'))
    plan = trained.scopeline("plan", "--config", "houses.yaml").stdout
    assert "Transform         cached" in plan
    assert "Trainer           runs    changed: the code that it runs" in plan


def test_builder_that_fails_is_named(trained: Project) -> None:
    (trained.folder / "my_model.py").write_text(
        "def build_model(problem, settings):\n    return 3\n"
    )
    done = trained.scopeline("run", "--config", "houses.yaml")
    assert done.returncode == 1
    assert "Trainer failed: " in done.stdout
    assert "my_model.build_model" in done.stdout
    assert "run.log" in done.stdout
    assert trained.summary("houses")["status"] == "failed"
