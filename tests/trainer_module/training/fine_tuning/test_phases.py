"""Two-phase fine-tuning: the losses of plain Keras, whichever strategy, loop and interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.pictures import prepare
from tests.support.trainings import begin, train_whole
from trainer_module.data.loading import TrainingData
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.models.pretrained_parts import (
    batch_norms,
    network_of,
)
from trainer_module.training.checkpoint import Position
from trainer_module.training.plan import TrainingResult

TRANSFER = {
    "freeze": True,
    "unfreeze_after": 2,
    "unfreeze_layers": 2,
    "learning_rate": 1e-4,
    "head": [4],
}
pytestmark = pytest.mark.slow

VGG = {"kind": "vgg16", "transfer": TRANSFER}


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


def test_replicas_and_the_other_loop_have_the_same_losses(
    expected: dict[str, list[float]], tmp_path: Path
) -> None:
    job = run(tmp_path, replicas=2, strategy="mirrored", loop="custom")
    for name in ("loss", "val_loss", "learning_rate"):
        np.testing.assert_allclose(job.history[name], expected[name], rtol=1e-5, err_msg=name)
    assert expected["learning_rate"] == pytest.approx([0.01, 0.01, 1e-4])


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


def test_killed_training_resumes_in_its_phase(
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


def test_unfreezing_after_the_last_epoch_is_refused(tmp_path: Path) -> None:
    transfer = {"freeze": True, "unfreeze_after": 30}
    message = "unfreeze_after is 30"
    with pytest.raises(TrainingError, match=message):
        begin(prepare(tmp_path, {"kind": "vgg16", "transfer": transfer}))
