"""Two-phase fine-tuning: the losses of plain Keras, whichever strategy, loop and interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.pictures import prepare
from tests.support.trainings import begin, train_whole
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.models.pretrained_parts import (
    batch_norms,
    network_of,
    pooling_model_of,
)
from trainer_module.runtime import PROGRESS_LOGGER
from trainer_module.trainer import train
from trainer_module.training import phases
from trainer_module.training.building import make_network
from trainer_module.training.checkpoint import Position
from trainer_module.training.folds import train_best_length
from trainer_module.training.plan import TrainingPlan, TrainingResult

TRANSFER = {
    "freeze": True,
    "unfreeze_after": 2,
    "unfreeze_layers": 2,
    "learning_rate": 1e-4,
    "head": [4],
}
VGG = {"kind": "vgg16", "transfer": TRANSFER}


@pytest.fixture(autouse=True)
def _plain_precision() -> Iterator[None]:
    yield
    tf_keras.mixed_precision.set_global_policy("float32")


def run(directory: Path, model: dict[str, Any] = VGG, **options: Any) -> TrainingResult:
    return train_whole(prepare(directory, model, **options))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """What TensorFlow's default strategy and `fit` come to."""
    return run(tmp_path_factory.mktemp("expected")).history


def plain_keras(model: tf_keras.Model, data: TrainingData) -> tuple[list[float], list[float]]:
    """The guide's two phases on the same batches, in the order that they come in: both losses."""
    network = network_of(model, "mobilenet_v3_small")
    batches = iter(data.train.batches(tf.distribute.InputContext()))
    held_out = list(data.evaluation.batches(tf.distribute.InputContext()))
    losses, measured = [], []

    def train(rate: float, epochs: int) -> None:
        loss = tf_keras.losses.BinaryCrossentropy()
        model.compile(tf_keras.optimizers.Adam(rate), loss)
        for _ in range(epochs):
            found = [model.train_on_batch(*next(batches)) for _ in range(data.train.steps)]
            model.reset_metrics()
            losses.append(float(np.mean(found)))
            measured.append(float(np.mean([model.test_on_batch(*batch) for batch in held_out])))

    network.trainable = False
    train(0.01, 2)
    network.trainable = True
    for layer in network.layers[:-30]:
        layer.trainable = False
    for layer in network.layers:
        if isinstance(layer, tf_keras.layers.BatchNormalization):
            layer.trainable = False
    train(1e-4, 1)
    return losses, measured


@pytest.mark.slow
def test_the_losses_are_those_of_plain_keras(tmp_path: Path) -> None:
    transfer = {**TRANSFER, "unfreeze_layers": 30}
    model = {"kind": "mobilenet_v3_small", "transfer": transfer}
    inputs = prepare(tmp_path, model)
    begun = begin(inputs).model
    reference = tf_keras.models.clone_model(begun)
    reference.set_weights(begun.get_weights())
    network = network_of(begun, "mobilenet_v3_small")
    statistics = [norm.moving_mean.numpy() for norm in batch_norms(network)]
    losses, measured = plain_keras(reference, inputs.data)
    tf_keras.utils.set_random_seed(inputs.settings.train.global_seed)
    job = train_whole(inputs)
    network = network_of(job.model, "mobilenet_v3_small")
    np.testing.assert_allclose(job.history["loss"], losses, rtol=1e-5)
    np.testing.assert_allclose(job.history["val_loss"], measured, rtol=1e-5)
    for norm, before in zip(batch_norms(network), statistics, strict=True):
        np.testing.assert_array_equal(norm.moving_mean, before)


@pytest.mark.slow
def test_replicas_and_the_other_loop_come_to_the_same(
    expected: dict[str, list[float]], tmp_path: Path
) -> None:
    job = run(tmp_path, replicas=2, strategy="mirrored", loop="custom")
    for name in ("loss", "val_loss", "learning_rate"):
        np.testing.assert_allclose(job.history[name], expected[name], rtol=1e-5, err_msg=name)
    assert expected["learning_rate"] == pytest.approx([0.01, 0.01, 1e-4])


@pytest.mark.slow
def test_pictures_may_be_mixed_and_precision_be_low(tmp_path: Path) -> None:
    """Under replicas and by the loop of ours as in one process by `fit`."""
    augment = {"flip": "horizontal", "mixup": 0.4}
    plain = run(tmp_path / "plain", augment=augment)
    assert plain.notes[0].endswith("in each epoch, because train.augment changes the pictures")
    options = {"strategy": "mirrored", "loop": "custom", "precision": "mixed_float16"}
    low = run(tmp_path / "low", replicas=2, augment=augment, **options)
    assert low.model.get_layer("photo_features").compute_dtype == "float32"
    assert network_of(low.model, "vgg16").layers[-1].compute_dtype == "float16"
    np.testing.assert_allclose(low.history["loss"], plain.history["loss"], rtol=0.01)


class Killed(tf_keras.callbacks.Callback):
    """Ends training as a kill would, in the middle of an epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self._at, self._epoch = epoch, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._epoch == self._at and batch == 1:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_killed_training_goes_on_in_its_phase(
    expected: dict[str, list[float]], tmp_path: Path
) -> None:
    """The second one, whose steps follow on all that the first phase has left."""
    inputs = prepare(tmp_path, VGG, loop="custom", backup_steps=1)
    with pytest.raises(KeyboardInterrupt):
        train_whole(inputs, [Killed(2)])
    job = train_whole(inputs)
    assert job.start == Position(2, 1)
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(job.history[name], expected[name], rtol=1e-5, err_msg=name)
    found = job.model.evaluate(
        job.evaluation.batches(tf.distribute.InputContext()), verbose=0, return_dict=True
    )
    assert found["loss"] == pytest.approx(min(expected["val_loss"]), rel=1e-4)


@pytest.mark.slow
def test_features_that_do_not_fit_are_computed_each_epoch(
    expected: dict[str, list[float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(phases, "MEMORY_SHARE", 0.0)
    with caplog.at_level("INFO", PROGRESS_LOGGER):
        job = run(tmp_path)
    assert "epoch 1 of 3" in caplog.messages, "those of both phases"
    note = (
        "transfer: the network's features are computed in each epoch, because they take 0.1 MB, but"
    )
    assert job.notes[0].startswith(note)
    np.testing.assert_allclose(job.history["loss"], expected["loss"], rtol=1e-5)


def test_features_are_those_of_the_pictures_in_order(tmp_path: Path) -> None:
    inputs = prepare(tmp_path, VGG, replicas=2, strategy="mirrored")
    job = begin(inputs)
    assert job.notes == [
        "transfer: the features of 32 pictures are computed once, 0.1 MB",
        "transfer: the network is frozen with random weights; set model.weights to pretrained "
        "weights",
    ]
    split: Split = job.train
    with inputs.strategy.scope():
        pooled = pooling_model_of(job.model, inputs.data.problem.of_kind("image"))
    step = phases.make_step(pooled, inputs.strategy)
    with tf.device("CPU:1"):  # In the place of a GPU.
        kept = phases.with_features(split, step, inputs.strategy)
    assert kept.content.tensors["photo"].backing_device.endswith("CPU:0")
    fewer = replace(split, content=split.content.select(np.arange(split.examples) < 5))
    assert phases.with_features(fewer, step, inputs.strategy).examples == 5
    assert step.experimental_get_tracing_count() == 1
    pictures = split.content.tensors["photo"]
    found = pooled({"photo": pictures})["photo"]
    np.testing.assert_allclose(kept.content.tensors["photo"], found, rtol=1e-5, atol=1e-6)
    for name in ("y", "amount"):
        np.testing.assert_array_equal(kept.content.tensors[name], split.content.tensors[name])
    assert (kept.examples, kept.steps) == (split.examples, split.steps)


def test_l2_counts_in_each_phase(tmp_path: Path) -> None:
    inputs = prepare(tmp_path, VGG, l2=0.1)
    plan = TrainingPlan.of(inputs.settings, inputs.data)
    model = make_network(inputs.data.problem, inputs.settings)
    (frozen, thawed), _ = phases.phases_of(model, inputs, plan)
    for phase in (frozen, thawed):
        phase.set_trainable()
        kernels = [w for w in phase.model.trainable_weights if "kernel" in w.name]
        expected = sum(0.1 * tf.reduce_sum(kernel**2) for kernel in kernels)
        assert len(kernels) == (2 if phase is frozen else 3)
        np.testing.assert_allclose(tf.add_n(phase.model.losses), expected, rtol=1e-5)


def test_unfreezing_after_the_last_epoch(tmp_path: Path) -> None:
    transfer = {"freeze": True, "unfreeze_after": 30}
    message = r"unfreeze_after is 30, but the training has 3 epochs, so nothing would be fine-tuned"
    with pytest.raises(TrainingError, match=message):
        begin(prepare(tmp_path, {"kind": "vgg16", "transfer": transfer}))


def test_a_network_that_stays_frozen_is_trained_twice(tmp_path: Path) -> None:
    model = {"kind": "vgg16", "transfer": {"freeze": True, "head": [4]}}
    inputs = prepare(tmp_path, model, epochs=1, early_stopping={"patience": 1})
    trained = train_best_length(train, inputs)
    assert trained.train.examples == inputs.data.train.examples
    assert "the final model was trained on all 16 examples" in trained.notes[-1]
