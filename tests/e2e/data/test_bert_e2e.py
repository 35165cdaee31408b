"""BERT from sentences to a pushed model, which takes raw text, in a process without our code."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tfx

from components.pusher.certificate import CERTIFICATE_PATH
from components.serving.certificate import read_golden
from tests.support.project import ROOT, Project, answered_alone

pytestmark = pytest.mark.slow

REVIEWS = Path(tfx.__file__).parent / "examples" / "imdb" / "data" / "imdb_small_with_labels.txt"
"""A hundred reviews of films, with whether they are good ones."""
WEIGHTS = ROOT / "tests" / "trainer_module" / "models" / "data" / "bert"
CONFIG = """
name: reviews
data: {format: csv, path: reviews.csv, label: label}
task: binary
features: {text: {type: text, max_tokens: 16}}
model: {kind: bert, weights: weights, outputs: [prediction, embedding]}
train: {epochs: 1}
evaluate: {thresholds: {auc: {min: 0.01, tolerance: 1}}}
"""
PLAIN = """
import json, sys
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.stdin.read())
served = model.signatures["serving_raw"](text=tf.constant(texts))
ours = sorted({"trainer_module", "tensorflow_transform"} & set(sys.modules))
print(json.dumps([served["scores"].numpy().tolist(), ours]))
"""


@pytest.fixture(scope="module")
def trained(project: Project) -> Project:
    """From weights, by whose vocabulary the texts are cut."""
    (project.folder / "reviews.yaml").write_text(CONFIG)
    rows = [dict(row) for row in csv.DictReader(REVIEWS.open())][:60]
    with (project.folder / "reviews.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    shutil.copytree(WEIGHTS, project.folder / "weights")
    done = project.scopeline("run", "--config", "reviews.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_every_way_of_asking_gives_the_embedding_beside_the_prediction(trained: Project) -> None:
    summary = trained.summary("reviews")
    ways = summary["certificate"]["ways"]
    assert {"serving_default", "serving_raw", "rest", "open_inference", "predict"} <= ways.keys()
    _, golden = read_golden(trained.folder / summary["pushed"] / CERTIFICATE_PATH)
    hidden = json.loads((WEIGHTS / "config.json").read_text())["hidden_size"]
    assert golden.keys() == {"class", "classes", "scores", "embedding"}
    assert golden["embedding"].shape == (len(golden["scores"]), hidden)
    assert len(np.unique(golden["embedding"], axis=0)) > 1


def test_plain_tensorflow_serves_raw_text(trained: Project) -> None:
    version = trained.versions("reviews")[-1]
    path = trained.output / "reviews" / "serving" / "reviews" / version
    texts = ["A good film!", "", "x" * 1000, "映画 \U0001f600"]
    scores, ours = answered_alone(PLAIN, path, texts)
    assert ours == []
    assert len(scores) == len(texts)
    assert all(abs(sum(row) - 1) < 1e-5 for row in scores)
    assert len({round(row[0], 6) for row in scores}) == len(texts)
