"""Schedules and callbacks, on models that take no data preparation."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from pydantic import ValidationError

from trainer_module.errors import TrainingError
from trainer_module.runtime import WorkerContext
from trainer_module.settings import Task, TrainerSettings, TrainSettings
from trainer_module.training.callbacks import describe_epoch, make_callbacks
from trainer_module.training.checkpoint import CheckpointCallback
from trainer_module.training.optimizers import build_schedule
from trainer_module.training.plan import TrainingInputs, TrainingPlan

STEPS = 10


def rates(epochs: int = 12, **learning_rate: Any) -> list[float]:
    """The learning rate of every step."""
    train = TrainSettings.model_validate({"epochs": epochs, "learning_rate": learning_rate})
    schedule = build_schedule(train, STEPS)
    return [float(schedule(step)) for step in range(epochs * STEPS)]


def test_steps_are_the_tutorials() -> None:
    found = rates(schedule="steps", values=[1e-3, 1e-4, 1e-5], boundaries=[3, 7])
    expected = [1e-3] * 3 * STEPS + [1e-4] * 4 * STEPS + [1e-5] * 5 * STEPS
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_cosine_falls_from_initial_to_the_final_fraction() -> None:
    found = rates(schedule="cosine", initial=0.1, final_fraction=0.1)
    step = np.arange(len(found)) / len(found)
    expected = 0.1 * (0.1 + 0.9 * (1 + np.cos(np.pi * step)) / 2)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_cosine_warms_up_linearly() -> None:
    found = rates(schedule="cosine", initial=0.1, warmup_epochs=2)
    np.testing.assert_allclose(found[:20], 0.1 * np.arange(20) / 20, rtol=1e-4, atol=1e-8)
    assert found[20] == pytest.approx(0.1)
    assert found[-1] < 0.001


def test_linear_rises_for_a_share_of_the_steps_and_falls_to_nothing() -> None:
    found = np.array(rates(epochs=10, schedule="linear", initial=0.1, warmup=0.2))
    np.testing.assert_allclose(found[:20], 0.1 * np.arange(1, 21) / 20, rtol=1e-5)
    np.testing.assert_allclose(found[20:], 0.1 * (100 - np.arange(20, 100)) / 80, rtol=1e-5)
    assert rates(epochs=10, schedule="linear", initial=0.1, warmup=0)[0] == pytest.approx(0.1)


def test_exponential_decays_by_the_factor_each_epoch() -> None:
    found = rates(schedule="exponential", initial=0.1, decay=0.5)
    np.testing.assert_allclose(found[::STEPS], 0.1 * 0.5 ** np.arange(12), rtol=1e-5)


def test_a_warm_up_as_long_as_training_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"warmup_epochs is 3; .*epochs \(3\)"):
        rates(epochs=3, schedule="cosine", initial=0.1, warmup_epochs=3)


def fit(
    directory: Path, epochs: int, data: Any = None, callbacks: Sequence[Any] = (), **train: Any
) -> tf_keras.Model:
    """One weight, trained to 0 by steps so large that it overshoots after a while."""
    settings = TrainSettings.model_validate({"epochs": epochs, **train})
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
    rate = build_schedule(settings, steps_per_epoch=4)
    model.compile(tf_keras.optimizers.SGD(rate), "mse")
    strategy = tf.distribute.get_strategy()
    given = TrainerSettings(label="y", task=Task.BINARY, train=settings)
    inputs: Any = TrainingInputs(given, WorkerContext(), strategy, str(directory), None, None)
    plan = TrainingPlan(epochs, epochs, steps=4, examples_per_step=1)
    checkpoint = CheckpointCallback(strategy, inputs.backup_directory, 4)
    data = data or (np.ones((4, 1), np.float32), np.ones((4, 1), np.float32))
    model.fit(
        *data,
        batch_size=1,
        validation_data=data,
        epochs=epochs,
        verbose=0,
        callbacks=[*callbacks, *make_callbacks(inputs, plan, checkpoint)[:-1]],
    )
    return model


def test_the_learning_rate_is_logged_every_epoch(tmp_path: Path) -> None:
    steps = {"schedule": "steps", "values": [0.1, 0.01, 0.001], "boundaries": [1, 3]}
    history = fit(tmp_path, epochs=4, learning_rate=steps).history.history
    assert history["learning_rate"] == pytest.approx([0.1, 0.01, 0.01, 0.001])
    events = tf.io.gfile.glob(str(tmp_path / "train" / "events*"))
    shown = [
        float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(events[0])
        for value in event.summary.value
        if value.tag == "epoch_learning_rate"
    ]
    assert shown == pytest.approx([0.1, 0.01, 0.01, 0.001])


def test_early_stopping(tmp_path: Path) -> None:
    rising = {"schedule": "steps", "values": [0.1, 1.1], "boundaries": [2]}
    model = fit(tmp_path, epochs=9, learning_rate=rising, early_stopping={"patience": 2})
    assert len(model.history.history["loss"]) == 4


def test_loss_of_nan_stops_training(tmp_path: Path) -> None:
    one = np.ones((4, 1), np.float32)
    with pytest.raises(TrainingError, match=r"at step 1, in epoch 1"):
        fit(tmp_path, epochs=3, data=(one, one * np.nan))


def test_step_of_divergence_is_named(tmp_path: Path) -> None:
    """The overshooting weight is no number any more some steps into the second epoch."""
    one = np.ones((4, 1), np.float32)
    with pytest.raises(TrainingError, match=r"at step 6, in epoch 2"):
        fit(tmp_path, 5, (one, one), learning_rate=1e4)


def decay(epoch: int) -> float:
    return 1e-3 if epoch < 3 else 1e-4 if epoch < 7 else 1e-5


def halve(epoch: int, rate: float) -> float:
    return rate / 2


def make_rising() -> tf_keras.optimizers.schedules.LearningRateSchedule:
    return tf_keras.optimizers.schedules.PolynomialDecay(0.1, 120, 0.2)


def fall_below_zero(epoch: int) -> float:
    return 0.2 - 0.1 * epoch


rising = make_rising()


def test_own_function_gives_the_learning_rate_of_each_epoch() -> None:
    schedule = build_schedule(own_rate("decay", epochs=12), STEPS)
    found = [float(schedule(step)) for step in range(12 * STEPS)]
    expected = [1e-3] * 3 * STEPS + [1e-4] * 4 * STEPS + [1e-5] * 5 * STEPS
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert float(schedule(99 * STEPS)) == pytest.approx(1e-5)


@pytest.mark.parametrize("name", ["rising", "make_rising"])
def test_own_schedule_gives_the_learning_rate_of_each_step(name: str) -> None:
    scaled = own_rate(name, scale_learning_rate=True)
    schedule = build_schedule(scaled, STEPS, replicas=2)
    assert [float(schedule(step)) for step in (0, 60, 120)] == pytest.approx([0.2, 0.3, 0.4])
    again = tf_keras.optimizers.schedules.deserialize(
        tf_keras.optimizers.schedules.serialize(schedule)
    )
    assert float(again(60)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "fall_below_zero",
            r"-0\.1\d* for epoch 3",
        ),
        ("halve", r"TypeError: halve\(\)"),
    ],
)
def test_unusable_own_learning_rate_is_named(name: str, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        build_schedule(own_rate(name, epochs=4), STEPS)


def own_rate(name: str, **train: Any) -> TrainSettings:
    return TrainSettings.model_validate({"learning_rate": f"{__name__}.{name}", **train})


def test_auto_learning_rate_grows_with_the_root_of_the_batch() -> None:
    train = TrainSettings.model_validate(
        {"learning_rate": {"schedule": "cosine", "initial": "auto"}, "scale_learning_rate": True}
    )
    large, small = (build_schedule(train, STEPS, 2, examples)(0) for examples in (256, 64))
    assert float(large) == pytest.approx(0.004)
    assert float(small) == pytest.approx(0.002)


def test_progress_reports_each_epoch_with_its_learning_rate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="scopeline.progress"):
        fit(tmp_path, epochs=2, learning_rate=0.01)
    records = [
        record
        for record in caplog.records
        if record.name == "scopeline.progress" and ", step " not in record.getMessage()
    ]
    assert [(record.getMessage(), vars(record)["done"]) for record in records] == [
        ("epoch 1 of 2, traces the graph", 0),
        ("epoch 1 of 2", 1),
        ("epoch 2 of 2", 2),
    ]
    assert {vars(record)["total"] for record in records} == {2}
    detail = r"loss [\d.e-]+, val_loss [\d.e-]+, learning_rate 0\.01"
    assert all(re.fullmatch(detail, vars(record)["detail"]) for record in records[1:])


def test_epoch_is_described_by_its_metrics() -> None:
    logs = {"loss": 0.5, "auc": 0.75, "learning_rate": 0.1, "val_loss": 0.625, "val_auc": 1.0}
    assert describe_epoch(logs) == (
        "loss 0.5, val_loss 0.625, auc 0.75, val_auc 1, learning_rate 0.1"
    )


@pytest.mark.slow
def test_tensorboard_shows_steps_the_graph_and_a_profile(tmp_path: Path) -> None:
    board = {"graph": True, "every": "batch", "profile": [2, 3]}
    fit(tmp_path, epochs=2, tensorboard=board)
    (events,) = tf.io.gfile.glob(str(tmp_path / "train" / "events*"))
    found = [*tf.compat.v1.train.summary_iterator(events)]
    steps = [e.step for e in found for value in e.summary.value if value.tag == "batch_loss"]
    assert steps == [*range(1, 9)]
    assert any(event.graph_def for event in found), "of the operations"
    tags = {value.tag for event in found for value in event.summary.value}
    assert {"keras", "epoch_loss", "epoch_learning_rate", "batch_3"} <= tags
    assert tf.io.gfile.glob(str(tmp_path / "plugins" / "profile" / "*" / "*"))
