"""Generators in training: alike on one replica and on two, and after a kill; what is exported."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.generation_runs import (
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
from trainer_module.families.generation.measures import Features, flatten
from trainer_module.families.generation.measuring import Reference, compare, measure
from trainer_module.families.generation.pictures import Pictures
from trainer_module.families.generation.sampler import write_samples
from trainer_module.families.measured import Estimate
from trainer_module.generation_trainer import BOARD_FOLDER, SAMPLES_FOLDER, run_fn
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


@pytest.mark.slow
def test_two_replicas_learn_as_one_does(data: Path, trained: Path, tmp_path: Path) -> None:
    train = {"batch_size": 4, "strategy": "mirrored"}
    run_fn(arguments(data, tmp_path, settings_of(train=train, task=CONDITIONAL, model=TINY_DCGAN)))
    one, other = history_of(trained), history_of(tmp_path)
    assert one.keys() == {"generator_loss", "discriminator_loss"}
    for name, losses in one.items():
        assert losses == pytest.approx(other[name], rel=2e-3)
        assert losses[0] != pytest.approx(losses[1], rel=2e-3)  # It learns.


class EndInSecondEpoch(tf_keras.callbacks.Callback):
    """Ends training after the fourth step of the second epoch, as a kill does."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._epoch == 1 and batch == 3:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_interrupted_training_resumes_to_the_same_pictures(
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


@pytest.mark.slow
def test_loss_of_nan_ends_the_training_and_keeps_the_checkpoint_before(
    data: Path, tmp_path: Path
) -> None:
    task = {"loss": "wasserstein", "critic_steps": 1}
    settings = settings_of(task=task, train={"learning_rate": 1e30})
    message = r"(generator|discriminator)_loss is (nan|-?inf) at step 2, in epoch 1"
    runtime = WorkerContext(backup_directory=str(tmp_path / "backup"), backup_steps=1)
    with pytest.raises(TrainingError, match=message):
        run_fn(arguments(data, tmp_path, settings, runtime))
    # Nothing goes on from the step by which all is lost.
    assert tf.train.latest_checkpoint(tmp_path / "backup") == str(tmp_path / "backup" / "ckpt-1")


@pytest.mark.slow
def test_each_epoch_writes_a_grid_of_pictures(trained: Path) -> None:
    files = sorted(path.name for path in (trained / SAMPLES_FOLDER).iterdir())
    assert files == ["epoch-0001.png", "epoch-0002.png"]
    grid = tf.io.decode_png((trained / SAMPLES_FOLDER / files[0]).read_bytes())
    assert grid.shape == (64, 64, 1)
    assert np.ptp(grid.numpy()) > 0
    # TensorBoard would follow the newest file of a folder alone.
    for folder in ("train", BOARD_FOLDER):
        assert len([*(trained / folder).glob("*tfevents*")]) == 1


@pytest.mark.slow
def test_a_picture_follows_from_its_seed_and_number_alone(trained: Path) -> None:
    model = tf.saved_model.load(str(trained / "model"))
    several = model.signatures["serving_default"](
        n=tf.constant(5, tf.int64), seed=tf.constant(7, tf.int64), label=tf.constant("b")
    )
    columns = {"seed": [9, 7, 7], "number": [0, 4, 0], "label": ["a", "b", "c"]}
    rows = {
        name: tf.constant(values, None if name == "label" else tf.int64)
        for name, values in columns.items()
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


@pytest.mark.slow
def test_samples_are_written(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_REQUESTED_AT_ONCE", 2)
    summary = write_samples(trained / "model", SampleRequest(5, 1, "a"), tmp_path)
    assert "grid.png" in summary
    names = [f"{number:04d}.png" for number in range(5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "grid.png"]
    served = tf.saved_model.load(str(trained / "model")).signatures["serving_default"]
    first = {"n": tf.constant(5, tf.int64), "seed": tf.constant(1, tf.int64)}
    pngs = served(**first, label=tf.constant("a"))["png"].numpy().tolist()
    assert [(tmp_path / name).read_bytes() for name in names] == pngs
    with pytest.raises(DataError, match=r"--class z.*a, b"):
        write_samples(trained / "model", SampleRequest(5, 1, "z"), tmp_path)


@pytest.mark.slow
def test_measures_and_collapse_of_a_generator(data: Path, trained: Path) -> None:
    settings = settings_of(task={**CONDITIONAL, "collapse": 0.99}, model=TINY_DCGAN)
    files = {split: [str(data / f"{split}.gz")] for split in ("train", "eval")}
    config = {**settings.to_custom_config(), EXAMPLES_KEY: files}
    found = measure(trained / "model", config)
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
    again = measure(trained / "model", config).metrics["frechet_distance"]
    assert isinstance(again, Estimate)
    assert distance.difference(again, 0.95) == (0, 0)


def test_generators_of_equal_mode_coverage_do_not_differ() -> None:
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


@pytest.mark.slow
def test_conditional_training_needs_classes(tmp_path: Path) -> None:
    write_pictures(tmp_path / "train.gz", 1)
    settings = settings_of(task=CONDITIONAL)
    with pytest.raises(TrainingError, match=r"data\.label"):
        run_fn(arguments(tmp_path, tmp_path / "run", settings))


def test_pictures_are_drawn_from_all_files() -> None:
    labels = np.repeat(np.array([b"a", b"b", b"c"], object), 100)
    values = np.zeros((300, 2, 2, 1), np.uint8)
    drawn = Pictures(values, labels).draw(60, seed=1)
    assert drawn.classes == ("a", "b", "c")
    assert len(drawn.labels) == len(drawn.values) == 60
    assert Pictures(values, labels).draw(300, seed=1).labels is labels
