"""Networks of pictures: as Keras builds them, with weights from whatever file it writes."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import h5py
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
from trainer_module.published import PUBLISHED
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


# The layers of efficientnet_b0 are those of mobilenet_v3 and more.
@pytest.mark.parametrize(
    "kind",
    [
        "resnet50",
        "vgg16",
        "mobilenet_v3",
        pytest.param("efficientnet_b0", marks=pytest.mark.slow),
    ],
)
def test_what_comes_out_is_what_the_network_of_keras_gives(kind: str, tmp_path: Path) -> None:
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
    with_top.save_weights(folder / "top.weights.h5")
    small.save_weights(folder / "small.weights.h5")
    whole = tf_keras.Sequential([small, tf_keras.layers.Flatten(), tf_keras.layers.Dense(2)])
    whole.save(folder / "whole.keras")
    whole.save(folder / "whole.h5")
    return folder


@pytest.mark.parametrize(
    "name", ["top.h5", "top.weights.h5", "small.weights.h5", "whole.keras", "whole.h5"]
)
def test_weights_come_from_any_file_of_keras(small: tf_keras.Model, files: Path, name: str) -> None:
    for weight in small.weights:
        weight.assign(tf.zeros_like(weight))
    load_weights(small, SMALL, str(files / name))
    statistics = [weight.numpy() for norm in batch_norms(small) for weight in norm.weights]
    assert min(values.min() for values in statistics) >= 0.8
    kernels = [layer.kernel for layer in small.layers if hasattr(layer, "kernel")]
    assert min(np.abs(kernel.numpy()).max() for kernel in kernels) > 0


def test_weights_by_name_are_in_the_cache_of_keras(
    small: tf_keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    path = tmp_path / "models" / PUBLISHED[SMALL][1].name
    with pytest.raises(TrainingError, match=rf"{re.escape(str(path))} cannot be read: No such"):
        build(SMALL, weights="imagenet")
    path.parent.mkdir()
    small.save_weights(path)
    network = build(SMALL, weights="imagenet").get_layer(f"{SMALL}_network")
    for found, expected in zip(network.weights, small.weights, strict=True):
        np.testing.assert_array_equal(found, expected)


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


def test_weights_of_another_architecture(files: Path) -> None:
    path = files / "small.weights.h5"
    network = keras_network("vgg16")
    message = (
        rf"model.weights: {re.escape(str(path))} holds the weights of another network than vgg16: "
        r"layer block1_conv1 has the shapes 3x3x3x16, not 3x3x3x64 64; .* and \d+ more"
    )
    with pytest.raises(TrainingError, match=message):
        load_weights(network, "vgg16", str(path))


def write_older_layout(path: Path, layers: Mapping[str, Sequence[np.ndarray]]) -> str:
    """A file as Keras writes it for save_format="h5"."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in layers]
        for name, weights in layers.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = [f"{name}_W_{i}".encode() for i in range(len(weights))]
            for i, weight in enumerate(weights):
                group[f"{name}_W_{i}"] = weight
    return str(path)


def test_weights_of_a_deeper_network_of_the_same_family(tmp_path: Path) -> None:
    """All layers of the smaller one are in it, with the same shapes."""
    network = keras_network("vgg16")
    layers = {layer.name: layer.get_weights() for layer in network.layers if layer.weights}
    layers["block3_conv4"] = [np.zeros((3, 3, 256, 256)), np.zeros(256)]
    path = write_older_layout(tmp_path / "vgg19.h5", layers)
    with pytest.raises(
        TrainingError, match=r"another network than vgg16: the network has no layer block3"
    ):
        load_weights(network, "vgg16", path)


def test_another_keras_may_have_named_the_layers(small: tf_keras.Model, tmp_path: Path) -> None:
    """Keras 3 calls Conv/BatchNorm conv_bn; what counts is the order, as to Keras itself."""
    right = [layer.get_weights() for layer in small.layers if layer.weights]
    layers = {f"other_{i}": weights for i, weights in enumerate(right)}
    layers["top"] = [np.zeros((576, 10)), np.zeros(10)]
    network = keras_network(SMALL)
    load_weights(network, SMALL, write_older_layout(tmp_path / "other.h5", layers))
    for layer, weights in zip((x for x in network.layers if x.weights), right, strict=True):
        for found, expected in zip(layer.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_truncated_file(files: Path, tmp_path: Path) -> None:
    whole = (files / "small.weights.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    message = r"cut.h5 is damaged: truncated file: .*; download the file again"
    with pytest.raises(TrainingError, match=message), open_weights(str(tmp_path / "cut.h5")):
        pass
    archive = (files / "whole.keras").read_bytes()
    (tmp_path / "cut.keras").write_bytes(archive[: len(archive) // 2])
    message = "cut.keras is damaged: the end of the archive is missing"
    with pytest.raises(TrainingError, match=message), open_weights(str(tmp_path / "cut.keras")):
        pass


def test_a_file_that_names_what_it_has_not(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "holes.h5", "w") as file:
        file.attrs["layer_names"] = [b"conv"]
        file.create_group("conv").attrs["weight_names"] = [b"conv/kernel:0"]
    network = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(1,), name="conv")])
    with pytest.raises(TrainingError, match=r"holes.h5 is damaged: .*; download the file again"):
        load_weights(network, "vgg16", str(tmp_path / "holes.h5"))


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "weights.pkl").write_bytes(pickle.dumps({"conv": np.zeros(3)}))
    with zipfile.ZipFile(tmp_path / "torch.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02.")
    for name in ("weights.pkl", "torch.pt"):
        message = f"{name} is a pickle; pickles are rejected, as reading a pickle can run any"
        with pytest.raises(TrainingError, match=message), open_weights(str(tmp_path / name)):
            pass


def test_a_file_with_a_broken_index(files: Path, tmp_path: Path) -> None:
    """HDF5 has several errors of its own for what it cannot follow."""
    content = (files / "small.weights.h5").read_bytes()
    network, causes = keras_network(SMALL), []
    message = r"broken.h5 is damaged: .*; download the file again"
    for mark in (b"TREE", b"HEAP", b"SNOD"):
        (tmp_path / "broken.h5").write_bytes(content.replace(mark, b"????"))
        with pytest.raises(TrainingError, match=message) as caught:
            load_weights(network, SMALL, str(tmp_path / "broken.h5"))
        causes.append(type(caught.value.__cause__))
    assert RuntimeError in causes


def test_an_exported_network_may_be_read_several_times_by_a_process(tmp_path: Path) -> None:
    """Keras numbers layers that have no name, as the scaling of EfficientNet."""

    def build_one() -> tf_keras.Model:
        pictures = tf_keras.Input((4, 4, 3))
        scaled = tf_keras.layers.Normalization()(pictures)
        return tf_keras.Model(pictures, tf_keras.layers.Conv2D(2, 3, name="conv")(scaled))

    exported = build_one()
    mean, variance = [0.1, 0.2, 0.3], [1.0, 2.0, 3.0]
    exported.layers[1].set_weights([np.array(mean), np.array(variance), 0])
    exported.save(tmp_path / "model", save_format="tf")
    for _ in range(2):
        again = build_one()
        load_weights(again, "efficientnet_b0", str(tmp_path / "model"))
        np.testing.assert_allclose(again.layers[1].mean.numpy().ravel(), mean)
        np.testing.assert_array_equal(again.layers[2].kernel, exported.layers[2].kernel)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"is a folder without a saved_model\.pb"):
        load_weights(keras_network("vgg16"), "vgg16", str(tmp_path))


def test_a_picture_smaller_than_the_network_takes() -> None:
    photo = TransformedFeature("photo", "image", (32, 28, 1))
    with pytest.raises(TrainingError, match="'photo' of 32x28 pixels is too small for vgg16"):
        build("vgg16", photo)
    with pytest.raises(TrainingError, match=r"'vgg16' needs an image feature, .* has amount"):
        build("vgg16", TransformedFeature("amount", "numeric", (2,)))


def test_grey_pictures_of_several_columns_share_the_network() -> None:
    photos = [TransformedFeature(name, "image", (32, 32, 1)) for name in ("one", "two")]
    model = build("vgg16", *photos, TransformedFeature("amount", "numeric", (2,)), hidden_units=[4])
    grey = np.random.default_rng(0).random((2, 32, 32, 1)).astype(np.float32)
    rows = {"one": grey, "two": grey, "amount": np.ones((2, 2), np.float32)}
    assert model(rows).shape == (2, 3)
    assert sum(isinstance(layer, tf_keras.Model) for layer in model.layers) == 2
    *_, hidden, _ = model.get_layer("head").layers
    assert hidden.kernel.shape == (512 + 512 + 2, 4)


def test_a_head_may_take_all_places_of_the_network() -> None:
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


def test_synchronised_statistics_are_those_of_the_joined_batch() -> None:
    """In a process of its own: TensorFlow remembers the shapes that replicas have exchanged."""
    run_script(SUPPORT / "synchronised_statistics.py")
