"""Text from a table to a pushed model, which plain TensorFlow serves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.project import Project, answered_alone

pytestmark = pytest.mark.slow

SHIPPED = Path(__file__).parents[3] / "configs" / "reviews.yaml"
PLAIN = """
import json, sys
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.stdin.read())
scores = model.signatures["serving_raw"](text=tf.constant(texts))["scores"].numpy().tolist()
ours = sorted({"trainer_module", "tensorflow_text", "tensorflow_transform"} & set(sys.modules))
print(json.dumps([scores, ours]))
"""


@pytest.fixture(scope="module")
def reviews(project: Project) -> Project:
    shutil.copy(SHIPPED, project.folder)
    optimize = "optimize={variants: [onnx], required: true}"
    done = project.scopeline("run", "--config", "reviews.yaml", "--set", optimize)
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_the_shipped_reviews_are_blessed_and_pushed(reviews: Project) -> None:
    assert len(reviews.versions("reviews")) == 1
    summary = reviews.summary("reviews")
    assert summary["training"]["model"] == "bag"
    assert summary["metrics"]["auc"]["value"] > 0.6


def test_a_variant_of_a_model_of_text_is_as_good(reviews: Project) -> None:
    summary = reviews.summary("reviews")
    (variant,) = summary["variants"]["variants"]
    assert variant["accepted"]
    auc = summary["metrics"]["auc"]["value"]
    assert variant["metrics"]["auc"] == pytest.approx(auc, abs=1e-4)


def test_plain_tensorflow_serves_them(reviews: Project) -> None:
    (version,) = reviews.versions("reviews")
    path = reviews.output / "reviews/serving/reviews" / version
    texts = [
        "A great film, the best of all",
        "a terrible, awful, boring movie",
        "",
        "word " * 20_000,
    ]
    scores, ours = answered_alone(PLAIN, path, texts)
    assert ours == []
    assert scores[0][1] > scores[1][1]
