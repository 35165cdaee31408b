"""Networks of pictures: as Keras builds them, with weights from whatever file it writes."""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support import SUPPORT
from tests.support.trainer_data import run_script
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.models.pretrained_parts import batch_norms
from trainer_module.families.supervised.models.pretrained_weights import load_weights, open_weights
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import NETWORKS, load_builder

HEIGHT, WIDTH = 36, 40
PHOTO = TransformedFeature("photo", "image", (HEIGHT, WIDTH, 3))
CLASSES = ("a", "b", "c")


def make_problem(*features: TransformedFeature) -> Problem:
    return Problem("multiclass", "y", CLASSES, features or (PHOTO,))


def build(kind: str, *features: TransformedFeature, **settings: object) -> tf_keras.Model:
    return load_builder(kind)(make_problem(*features), ModelSettings(kind=kind, **settings))


def keras_network(kind: str, include_top: bool = False) -> tf_keras.Model:
    """With random weights, and statistics of batch normalisation that are not those of new ones."""
    shape = (HEIGHT, WIDTH, 3)
    if include_top and kind == "vgg16":
        shape = (32, 32, 3)
    network = getattr(tf_keras.applications, NETWORKS[kind].constructor)(
        weights=None, include_top=include_top, input_shape=shape, classes=5
    )
    random = np.random.default_rng(1)
    for norm in batch_norms(network):
        for weight in norm.weights:
            weight.assign(random.uniform(0.8, 1.2, weight.shape))
    return network


def pixels(rows: int = 2) -> np.ndarray:
    return np.random.default_rng(0).random((rows, HEIGHT, WIDTH, 3)).astype(np.float32)


def preprocessed(kind: str, pictures: np.ndarray) -> np.ndarray:
    """By Keras's own function of the network."""
    modules = {"resnet50": tf_keras.applications.resnet50, "vgg16": tf_keras.applications.vgg16}
    plain = tf_keras.applications.efficientnet
    return modules.get(kind, plain).preprocess_input(pictures * 255.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resnet50", "efficientnet_b0"])
def test_features_equal_those_of_the_network_of_keras(kind: str, tmp_path: Path) -> None:
    """With its own preprocessing, and weights without top in the file that Keras publishes."""
    network = keras_network(kind)
    network.save_weights(tmp_path / "weights.h5")
    model = build(kind, weights=str(tmp_path / "weights.h5"))
    pictures = pixels()
    expected = network(preprocessed(kind, pictures), training=False).numpy().mean(axis=(1, 2))
    found = tf_keras.Model(model.input, model.get_layer("photo_features").output)
    np.testing.assert_allclose(found({"photo": pictures}), expected, rtol=1e-4, atol=1e-6)
    assert model({"photo": pictures}).shape == (2, 3)


SMALL = "mobilenet_v3_small"


@pytest.fixture(scope="module")
def small() -> tf_keras.Model:
    """The smallest network, without top."""
    return keras_network(SMALL)


@pytest.fixture(scope="module")
def files(small: tf_keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the network's weights in every layout that Keras has."""
    folder = tmp_path_factory.mktemp("files")
    with_top = keras_network(SMALL, include_top=True)
    with_top.save_weights(folder / "top.h5")
    small.save_weights(folder / "small.weights.h5")
    whole = tf_keras.Sequential([small, tf_keras.layers.Flatten(), tf_keras.layers.Dense(2)])
    whole.save(folder / "whole.keras")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top.h5", "small.weights.h5", "whole.keras"])
def test_weights_come_from_any_file_of_keras(small: tf_keras.Model, files: Path, name: str) -> None:
    for weight in small.weights:
        weight.assign(tf.zeros_like(weight))
    load_weights(small, SMALL, str(files / name))
    statistics = [weight.numpy() for norm in batch_norms(small) for weight in norm.weights]
    assert min(values.min() for values in statistics) >= 0.8
    kernels = [layer.kernel for layer in small.layers if hasattr(layer, "kernel")]
    assert min(np.abs(kernel.numpy()).max() for kernel in kernels) > 0


def test_published_deviations_of_efficientnet_become_variances(tmp_path: Path) -> None:
    """Keras's own graph of ImageNet's weights divides by their root once more."""
    scaling = tf_keras.layers.Normalization(input_shape=(1, 1, 3))
    network = tf_keras.Sequential([scaling])
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    scaling.set_weights([mean, deviation, 0])
    network.save_weights(tmp_path / "published.h5")
    scaling.set_weights([np.zeros(3), np.ones(3), 0])
    load_weights(network, "efficientnet_b0", str(tmp_path / "published.h5"))
    found = scaling(np.full((1, 1, 1, 3), 0.5, np.float32)).numpy().ravel()
    np.testing.assert_allclose(found, (0.5 - mean) / deviation, rtol=1e-5)


@pytest.mark.slow
def test_weights_of_another_architecture_are_refused(files: Path) -> None:
    path = files / "small.weights.h5"
    network = keras_network("vgg16")
    with pytest.raises(TrainingError, match=r"model\.weights: .*block1_conv1 .*3x3x3x16"):
        load_weights(network, "vgg16", str(path))


@pytest.mark.slow
def test_truncated_file_is_refused(files: Path, tmp_path: Path) -> None:
    whole = (files / "small.weights.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    message = r"cut.h5 is damaged"
    with pytest.raises(TrainingError, match=message), open_weights(str(tmp_path / "cut.h5")):
        pass
    archive = (files / "whole.keras").read_bytes()
    (tmp_path / "cut.keras").write_bytes(archive[: len(archive) // 2])
    message = "cut.keras is damaged"
    with pytest.raises(TrainingError, match=message), open_weights(str(tmp_path / "cut.keras")):
        pass


def test_pickle_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "weights.pkl").write_bytes(pickle.dumps({"conv": np.zeros(3)}))
    with zipfile.ZipFile(tmp_path / "torch.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02.")
    for name in ("weights.pkl", "torch.pt"):
        message = f"{name} is a pickle"
        with pytest.raises(TrainingError, match=message), open_weights(str(tmp_path / name)):
            pass


def test_too_small_picture_is_refused() -> None:
    photo = TransformedFeature("photo", "image", (32, 28, 1))
    with pytest.raises(TrainingError, match="'photo' of 32x28 pixels is too small for vgg16"):
        build("vgg16", photo)
    with pytest.raises(TrainingError, match=r"'vgg16' needs an image feature, .* has amount"):
        build("vgg16", TransformedFeature("amount", "numeric", (2,)))


@pytest.mark.slow
def test_head_of_all_places_of_the_network() -> None:
    wide = TransformedFeature("photo", "image", (32, 64, 3))
    pictures = np.random.default_rng(0).random((2, 32, 64, 3)).astype(np.float32)
    widths = {"average": 512, "flatten": 1 * 2 * 512}
    for head, width in widths.items():
        model = build("vgg16", wide, hidden_units=[4], transfer={"head": head})
        assert model({"photo": pictures}).shape == (2, 3)
        *_, hidden, _ = model.get_layer("head").layers
        assert hidden.kernel.shape == (width, 4)
    features = tf_keras.Model(model.input, model.get_layer("photo_features").output)
    places = model.get_layer("vgg16_network")(preprocessed("vgg16", pictures)).numpy()
    np.testing.assert_allclose(
        features({"photo": pictures}), places.reshape(2, -1), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(TrainingError, match=r"model.transfer.head is flatten, but columns of"):
        build("vgg16", wide, replace(PHOTO, name="other"), transfer={"head": "flatten"})


@pytest.mark.slow
def test_synchronised_statistics_are_those_of_the_joined_batch() -> None:
    """In a process of its own: TensorFlow remembers the shapes that replicas have exchanged."""
    run_script(SUPPORT / "synchronised_statistics.py")
