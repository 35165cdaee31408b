"""Generators in training: alike on one replica and on two, and after a kill; what is exported."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.generation_runs import (
    TINY,
    TINY_DCGAN,
    arguments,
    history_of,
    settings_of,
    write_pictures,
    write_splits,
)
from trainer_module.errors import DataError, TrainingError
from trainer_module.families import EXAMPLES_KEY, SampleRequest
from trainer_module.families.generation import sampler
from trainer_module.families.generation.measures import Features, flatten, learn_features
from trainer_module.families.generation.measuring import Reference, compare, generate, measure
from trainer_module.families.generation.pictures import Pictures, read_pictures
from trainer_module.families.generation.sampler import write_samples
from trainer_module.families.measured import Estimate
from trainer_module.generation_trainer import BOARD_FOLDER, SAMPLES_FOLDER, open_inputs, run_fn
from trainer_module.runtime import WorkerContext

CONDITIONAL = {"conditional": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both splits."""
    return write_splits(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a conditional dcgan."""
    run = tmp_path_factory.mktemp("conditional")
    run_fn(arguments(data, run, settings_of(task=CONDITIONAL, model=TINY_DCGAN)))
    return run


def check_two_replicas(data: Path, run: Path, alone: Path, **sections: Any) -> None:
    """Trains on two replicas, and compares the losses with those of a run on one."""
    train = {"batch_size": 4, "strategy": "mirrored"}
    run_fn(arguments(data, run, settings_of(train=train, **sections)))
    one, other = history_of(alone), history_of(run)
    assert one.keys() == {"generator_loss", "discriminator_loss"}
    for name, losses in one.items():
        assert losses == pytest.approx(other[name], rel=2e-3)
        assert losses[0] != pytest.approx(losses[1], rel=2e-3)  # It learns.


def test_two_replicas_learn_what_one_does(data: Path, trained: Path, tmp_path: Path) -> None:
    check_two_replicas(data, tmp_path, trained, task=CONDITIONAL, model=TINY_DCGAN)


def test_two_replicas_learn_from_several_critic_steps(data: Path, tmp_path: Path) -> None:
    sections = {"task": {"loss": "wasserstein", "critic_steps": 2}, "model": TINY}
    run_fn(arguments(data, tmp_path / "one", settings_of(**sections)))
    check_two_replicas(data, tmp_path / "two", tmp_path / "one", **sections)


class EndInSecondEpoch(tf_keras.callbacks.Callback):
    """Ends training after the fourth step of the second epoch, as a kill does."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._epoch == 1 and batch == 3:
            raise KeyboardInterrupt


def test_a_training_that_was_ended_goes_on_as_if_nothing_had_happened(
    data: Path, trained: Path, tmp_path: Path
) -> None:
    runtime = WorkerContext(backup_directory=str(tmp_path / "backup"), backup_steps=2)
    ending = {"callbacks": [f"{__name__}.{EndInSecondEpoch.__name__}"]}
    for train in (ending, {}):
        settings = settings_of(task=CONDITIONAL, model=TINY_DCGAN, train=train)
        with pytest.raises(KeyboardInterrupt) if train else nullcontext():
            run_fn(arguments(data, tmp_path, settings, runtime))
        assert (tmp_path / "training.json").exists() is not bool(train)
    losses = [np.array([*history_of(run).values()]) for run in (tmp_path, trained)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["resumed_at_step"] == 5 + 2
    noise = {"noise": tf.random.stateless_normal([4, 6], [3, 3]), "label": tf.zeros(4, tf.int32)}
    pictures = [
        tf.saved_model.load(str(run / "model")).signatures["from_noise"](**noise)["pictures"]
        for run in (tmp_path, trained)
    ]
    assert pictures[0].numpy() == pytest.approx(pictures[1].numpy(), abs=1e-4)


def test_a_loss_that_is_no_number_ends_the_training(data: Path, tmp_path: Path) -> None:
    task = {"loss": "wasserstein", "critic_steps": 1}
    settings = settings_of(task=task, train={"learning_rate": 1e30})
    says = r"training diverged: (generator|discriminator)_loss is (nan|-?inf) at step 2, in epoch 1"
    runtime = WorkerContext(backup_directory=str(tmp_path / "backup"), backup_steps=1)
    with pytest.raises(TrainingError, match=says):
        run_fn(arguments(data, tmp_path, settings, runtime))
    # Nothing goes on from the step by which all is lost.
    assert tf.train.latest_checkpoint(tmp_path / "backup") == str(tmp_path / "backup" / "ckpt-1")


def test_each_epoch_leaves_a_grid(trained: Path) -> None:
    files = sorted(path.name for path in (trained / SAMPLES_FOLDER).iterdir())
    assert files == ["epoch-0001.png", "epoch-0002.png"]
    grid = tf.io.decode_png((trained / SAMPLES_FOLDER / files[0]).read_bytes())
    assert grid.shape == (64, 64, 1)
    assert np.ptp(grid.numpy()) > 0
    # TensorBoard would follow the newest file of a folder alone.
    for folder in ("train", BOARD_FOLDER):
        assert len([*(trained / folder).glob("*tfevents*")]) == 1


def test_a_picture_follows_from_its_seed_and_number_alone(trained: Path) -> None:
    model = tf.saved_model.load(str(trained / "model"))
    several = model.signatures["serving_default"](
        n=tf.constant(5, tf.int64), seed=tf.constant(7, tf.int64), label=tf.constant("b")
    )
    asked = {"seed": [9, 7, 7], "number": [0, 4, 0], "label": ["a", "b", "c"]}
    rows = {
        name: tf.constant(values, None if name == "label" else tf.int64)
        for name, values in asked.items()
    }
    other, fourth, none = model.signatures["serving_raw"](**rows)["png_base64"].numpy().tolist()
    png = several["png"].numpy()[4]
    assert tf.io.decode_base64(fourth.replace(b"+", b"-").replace(b"/", b"_")).numpy() == png
    assert none == b"" != other
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"found n.*expected: 0 to 524288"):
        model.signatures["serving_default"](
            n=tf.constant(10**9, tf.int64), seed=tf.constant(7, tf.int64), label=tf.constant("b")
        )
    picture = several["pictures"].numpy()[4]
    assert tf.io.decode_png(png).numpy() == pytest.approx(255 * picture, abs=0.51)


def test_samples_are_written(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_REQUESTED_AT_ONCE", 2)
    said = write_samples(trained / "model", SampleRequest(5, 1, "a"), tmp_path)
    assert said == "5 pictures of seed 1, and grid.png"
    names = [f"{number:04d}.png" for number in range(5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "grid.png"]
    served = tf.saved_model.load(str(trained / "model")).signatures["serving_default"]
    first = {"n": tf.constant(5, tf.int64), "seed": tf.constant(1, tf.int64)}
    pngs = served(**first, label=tf.constant("a"))["png"].numpy().tolist()
    assert [(tmp_path / name).read_bytes() for name in names] == pngs
    with pytest.raises(
        DataError, match="--class z: the model does not have this class; its classes are a, b"
    ):
        write_samples(trained / "model", SampleRequest(5, 1, "z"), tmp_path)


def test_a_model_is_measured_and_its_collapse_is_said(data: Path, trained: Path) -> None:
    settings = settings_of(task={**CONDITIONAL, "collapse": 0.99}, model=TINY_DCGAN)
    files = {split: [str(data / f"{split}.gz")] for split in ("train", "eval")}
    told = {**settings.to_custom_config(), EXAMPLES_KEY: files}
    found = measure(trained / "model", told)
    assert found.metrics.keys() == settings.target.metrics().keys()
    distance = found.metrics["frechet_distance"]
    assert isinstance(distance, Estimate)
    low, high = distance.interval(0.95)
    assert 0 < low <= high
    for name in ("precision", "recall", "mode_coverage", "copies", "class_accuracy"):
        share = found.metrics[name]
        assert isinstance(share, Estimate)
        assert 0 <= share.resamples.min() <= share.resamples.max() <= 1
    assert "accuracy on the eval split is 1.000" in found.notes[0]
    assert "the generator has collapsed: its pictures have" in found.failures[0]
    # The same model against itself differs by nothing.
    again = measure(trained / "model", told).metrics["frechet_distance"]
    assert isinstance(again, Estimate)
    assert distance.difference(again, 0.95) == (0, 0)


def test_generators_that_cover_as_many_modes_differ_by_nothing() -> None:
    def shades(dark: int, light: int) -> np.ndarray:
        return np.repeat([0, 255], [dark, light]).astype(np.uint8).reshape(-1, 1, 1, 1)

    features = Features(flatten, lambda found: found.reshape(-1) // 255, 2, ())
    real = Pictures(shades(50, 50), np.full(100, b""))
    found = [
        compare(shades(500 - light, light), None, Reference(real, real, features), 0.0)
        for light in (28, 30)  # A tenth would cover the light ones: resamples of 30 may have it.
    ]
    one, other = (measured.metrics["mode_coverage"] for measured in found)
    assert isinstance(one, Estimate)
    assert isinstance(other, Estimate)
    assert one.value == other.value == 0.5
    low, high = other.difference(one, 0.95)
    assert low <= 0 <= high


def test_a_class_that_is_asked_for_has_to_be_there(tmp_path: Path) -> None:
    write_pictures(tmp_path / "train.gz", 1)
    settings = settings_of(task=CONDITIONAL)
    says = "needs a class for every picture in data.label .'label'., but all pictures have the same"
    with pytest.raises(TrainingError, match=says):
        run_fn(arguments(tmp_path, tmp_path / "run", settings))


def test_noise_of_the_evaluation_is_none_of_training(data: Path, tmp_path: Path) -> None:
    settings = settings_of(train={"batch_size": 40})
    inputs = open_inputs(arguments(data, tmp_path, settings))
    batches = inputs.deal.batches(tf.distribute.InputContext()).take(4).as_numpy_iterator()
    learnt = np.concatenate([batch["noise"] for batch in batches])
    asked: list[np.ndarray] = []

    class Listening:
        """Keeps the noise that it is asked for."""

        structured_input_signature = ((), {"noise": tf.TensorSpec([None, 6])})

        def __call__(self, noise: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
            asked.append(noise.numpy())
            return {"pictures": tf.zeros([len(label), 12, 6, 3])}

    described = {"classes": tf.constant([], tf.string)}
    model = SimpleNamespace(signatures={"from_noise": Listening(), "describe": lambda: described})
    generated, _ = generate(model, inputs.deal.pictures, settings.train.seed)
    assert generated.shape[1:] == (8, 8, 1)  # As those that they are compared with.
    noise = np.concatenate(asked)
    assert noise.shape == (500, 6)
    assert not {*map(tuple, noise)} & {*map(tuple, learnt)}


def test_pictures_are_drawn_from_all_files() -> None:
    labels = np.repeat(np.array([b"a", b"b", b"c"], object), 100)
    values = np.zeros((300, 2, 2, 1), np.uint8)
    drawn = Pictures(values, labels).draw(60, seed=1)
    assert drawn.classes == ("a", "b", "c")
    assert len(drawn.labels) == len(drawn.values) == 60
    assert Pictures(values, labels).draw(300, seed=1).labels is labels


def test_a_single_picture_has_features() -> None:
    picture = np.full((1, 8, 8, 1), 100, np.uint8)
    features = learn_features(Pictures(picture, np.array([b""], object)), seed=1)
    assert features.extract(picture).tolist() == [[0.0] * 64]


@pytest.mark.parametrize(
    ("labels", "found", "classes"),
    [
        ([None, [3], [4]], [b"", b"3", b"4"], ()),
        ([[4], [3], [4]], [b"4", b"3", b"4"], ("3", "4")),
        ([[0.5], [2.0], None], [b"0.5", b"2", b""], ()),
        ([None, None, None], [b"", b"", b""], ()),
    ],
)
def test_labels_of_any_type_are_texts_and_classes_if_all_pictures_have_one(
    tmp_path: Path, labels: list[Any], found: list[bytes], classes: tuple[str, ...]
) -> None:
    png = tf.io.encode_png(np.zeros((8, 8, 1), np.uint8)).numpy()
    with tf.io.TFRecordWriter(str(tmp_path / "some.gz"), "GZIP") as writer:
        for label in labels:
            feature = {"image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png]))}
            if label and isinstance(label[0], int):
                feature["label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=label))
            elif label:
                feature["label"] = tf.train.Feature(float_list=tf.train.FloatList(value=label))
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    column = settings_of().features["image"]
    pictures = read_pictures([str(tmp_path / "some.gz")], "image", column, "label")
    assert pictures.labels.tolist() == found
    assert pictures.classes == classes
