"""Networks of pictures from a config to a pushed model, on a few digits at the smallest size."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.example_gen.builtin import BUILTIN_DATA
from tests.support import warm
from tests.support.project import ROOT, Project
from trainer_module.base_model import read_values
from trainer_module.published import CLASS_INDEX, PUBLISHED
from trainer_module.training.phases import PUBLISHED_NOTE

pytestmark = pytest.mark.slow

SMALL = "mobilenet_v3_small"
SHALLOW = "vgg16"
"""Of few layers, of which graphs are quickly made."""
CONFIG = """
name: networks
data: {format: images, path: digits}
task: multiclass
features: {image: {type: image, height: 32, width: 32, channels: 1}}
train: {epochs: 1, batch_size: 8}
evaluate: {thresholds: {accuracy: {min: 0.0, tolerance: 1.0}}}
"""


@pytest.fixture(scope="module")
def digits(project: Project) -> Project:
    """A few pictures of two digits, and a config of them without a model."""
    shipped = Path(BUILTIN_DATA["digits"].locate(project.folder / "builtin"))
    for digit in ("0", "1"):
        (folder := project.folder / "digits" / digit).mkdir(parents=True)
        for path in sorted((shipped / digit).iterdir())[:12]:
            shutil.copy(path, folder)
    (project.folder / "networks.yaml").write_text(CONFIG)
    return project


def run(project: Project, model: str, *options: str) -> str:
    """Trains, evaluates and pushes; the folder of the version that is served."""
    model = f"model={model}"
    done = project.scopeline("run", "--config", "networks.yaml", "--set", model, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(project.summary("networks")["pushed"])


def check_trained_and_pushed(digits: Project, kind: str, *options: str) -> str:
    """Trains a network, and asks what is pushed."""
    pushed = run(digits, f"{{kind: {kind}, transfer: {{freeze: true, head: [8]}}}}", *options)
    training = digits.summary("networks")["training"]
    assert training["model"] == kind
    assert training["notes"][0].startswith(
        "transfer: the features of 24 pictures are computed once"
    )
    served = tf.saved_model.load(str(digits.folder / pushed)).signatures["serving_raw"]
    picture = next((digits.folder / "digits" / "1").iterdir()).read_bytes()
    assert served(image=tf.constant([picture, picture]))["scores"].shape == (2, 2)
    return pushed


def test_a_network_is_trained_evaluated_and_pushed(digits: Project) -> None:
    check_trained_and_pushed(digits, "resnet50")


def test_weights_of_a_pushed_model_begin_another(digits: Project) -> None:
    """The network's, which Trainer runs again for; Transform does not. What is pushed answers what
    the network makes of a picture, without a head.
    """
    pushed = check_trained_and_pushed(digits, SHALLOW, "--set", "certificate=false")
    answers = "outputs: [embedding]"
    again = run(digits, f"{{kind: {SHALLOW}, weights: {pushed}, transfer: {{}}, {answers}}}")
    assert digits.states("networks")["Transform"] == "cached"
    notes = digits.summary("networks")["training"]["notes"]
    assert not any("random weights" in note for note in notes)
    values = [read_values(str(digits.folder / folder)) for folder in (pushed, again)]
    np.testing.assert_array_equal(*(value["block1_conv1/kernel"] for value in values))
    assert digits.summary("networks")["metrics"]["accuracy"]["value"] >= 0
    served = tf.saved_model.load(str(digits.folder / again)).signatures["serving_raw"]
    picture = next((digits.folder / "digits" / "1").iterdir()).read_bytes()
    answer = served(image=tf.constant([picture]))
    assert answer.keys() == {"embedding"}
    assert answer["embedding"].shape == (1, 512)
    assert len(digits.summary("networks")["certificate"]["ways"]) == 5


RUN = """
import sys
from dataclasses import replace
from local_runner import main
from pipeline.data import fetching
from trainer_module import published

# The files are not those that Keras publishes: only their hashes are others.
kind, whole, names = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
file, base = published.PUBLISHED[kind]
published.PUBLISHED[kind] = (replace(file, md5=whole), base)
fetching.CLASS_INDEX = replace(fetching.CLASS_INDEX, md5=names)
main()
"""


def test_a_published_classifier_is_pushed_without_training(digits: Project, tmp_path: Path) -> None:
    """From Keras's cache, filled by hand; it is evaluated by the classes that the data has."""
    cache = tmp_path / "models"
    cache.mkdir()
    network = tf_keras.applications.MobileNetV3Small(weights=None, input_shape=(32, 32, 3))
    network.save_weights(cache / PUBLISHED[SMALL][0].name)
    names = [str(n) if n < 2 else f"thing {n}" for n in range(1000)]
    numbered = {place: [f"n{place:08}", name] for place, name in enumerate(names)}
    (cache / CLASS_INDEX.name).write_text(json.dumps(numbered))
    hashes = [
        hashlib.md5((cache / file.name).read_bytes(), usedforsecurity=False).hexdigest()
        for file in (PUBLISHED[SMALL][0], CLASS_INDEX)
    ]
    (digits.folder / "published.yaml").write_text(
        CONFIG.replace("name: networks", "name: published").replace(
            "task: multiclass", "task: {kind: multiclass, classes: imagenet}"
        )
        + f"model: {{kind: {SMALL}, weights: imagenet, transfer: {{head: published}}}}\n"
    )
    arguments = ["run", "--config", "published.yaml", "--output", str(digits.output)]
    done = warm.run(
        [sys.executable, "-c", RUN, SMALL, *hashes, *arguments],
        cwd=digits.folder,
        env={**digits.environment, "KERAS_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = digits.summary("published")
    assert summary["training"]["notes"] == [PUBLISHED_NOTE]
    assert summary["training"]["epochs"] == 0
    assert 0 <= summary["metrics"]["accuracy"]["value"] <= 1
    served = tf.saved_model.load(str(digits.folder / summary["pushed"])).signatures["serving_raw"]
    picture = next((digits.folder / "digits" / "1").iterdir()).read_bytes()
    answer = served(image=tf.constant([picture]))
    assert answer["classes"].numpy()[0].tolist() == [name.encode() for name in names]
    grey = tf.image.resize(tf.io.decode_image(picture, 1, expand_animations=False), [32, 32])
    expected = network(tf.image.grayscale_to_rgb(grey)[tf.newaxis], training=False)
    np.testing.assert_allclose(answer["scores"], expected, rtol=1e-3, atol=1e-6)
