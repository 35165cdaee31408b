"""What relies on Keras's insides refuses other ones, or does as Keras does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
import tf_keras
from tf_keras.src.engine.training import Model

from trainer_module.compat import keras
from trainer_module.compat.keras import use_several_steps
from trainer_module.errors import InternalError
from trainer_module.training.building import _is_linear
from trainer_module.training.checkpoint import Position
from trainer_module.training.loops import train_by_fit
from trainer_module.training.plan import TrainingPlan

Adam = tf_keras.optimizers.Adam


def change(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Puts a function in the place of another that does the same today."""
    stock = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: stock(*given, **named))


def test_resumption_refuses_an_unknown_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, Model, "_maybe_load_initial_counters_from_ckpt")
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
    data: Any = None
    plan = TrainingPlan(2, 2, steps=9, examples_per_step=1)
    with pytest.raises(InternalError, match="cannot be relied on"):
        train_by_fit(model, data, plan, Position(1, 5), [])


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING)
    keras._steps_are_known.cache_clear()
    yield lambda: [line for line in caplog.messages if line.startswith("slower")]
    keras._steps_are_known.cache_clear()


def trained(optimizer: tf_keras.optimizers.Optimizer, steps: int = 1) -> list[Any]:
    """The weights of a small model after a few steps."""
    tf_keras.utils.set_random_seed(1)
    model = tf_keras.Sequential([tf_keras.layers.Dense(3, input_shape=(2,))])
    model.compile(optimizer, "mse", steps_per_execution=steps)
    if steps > 1:
        use_several_steps(model)
    batches = tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 3)))).repeat()
    model.fit(batches, steps_per_epoch=4, verbose=0)
    return [weight.numpy().tolist() for weight in model.weights]


@pytest.mark.slow
def test_unknown_execution_of_steps_is_left_to_keras(
    monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    expected = trained(Adam(0.1), 2)
    keras._steps_are_known.cache_clear()
    monkeypatch.setattr(keras, "_repeat", lambda *_: pytest.fail("it is replaced"))
    change(monkeypatch, Model, "get_metrics_result")
    assert trained(Adam(0.1), 2) == expected
    trained(Adam(0.1), 2)
    assert len(warnings()) == 1


def test_unknown_history_of_the_last_layer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _is_linear(tf_keras.layers.Dense(1)(tf_keras.Input((2,))))
    assert not _is_linear(tf.ones((2, 1)))
    monkeypatch.setattr(tf_keras.backend, "is_keras_tensor", lambda _: True)
    with pytest.raises(InternalError, match=r"_keras_history"):
        _is_linear(tf.ones((2, 1)))
