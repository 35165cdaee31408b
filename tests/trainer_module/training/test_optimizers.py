"""The optimizers, with their options, on a model that takes no data preparation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import strategy_settings
from trainer_module.settings import TrainSettings
from trainer_module.strategies import build_strategy
from trainer_module.training.optimizers import build_optimizer


def optimizer_of(settings: Any, rate: float = 0.1, steps: int = 2) -> Any:
    return build_optimizer(TrainSettings(optimizer=settings).optimizer, rate, steps)


def model_of(optimizer: Any) -> tf_keras.Model:
    """A kernel of ones and a bias of one, of a layer whose name must not matter."""
    layers = [
        tf_keras.layers.Dense(
            1, name="beta", kernel_initializer="ones", bias_initializer="ones", input_shape=(2,)
        ),
        tf_keras.layers.BatchNormalization(),
    ]
    model = tf_keras.Sequential(layers)
    model.compile(optimizer, "mse", jit_compile=False)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        ({"kind": "adamw", "clip_norm": 1, "ema": 0.5}, "central_storage"),
        ({"kind": "sgd", "momentum": 0.9, "nesterov": True, "ema": 0.5}, "mirrored"),
        ({"kind": "lion", "weight_decay": 0.1}, "default"),
    ],
)
def test_every_optimizer_takes_steps(settings: Any, strategy: str) -> None:
    with build_strategy(strategy_settings(strategy)).scope():
        model = model_of(optimizer_of(settings))
        before = model.get_weights()
        inputs = np.arange(32, dtype=np.float32).reshape(16, 2)
        model.fit(inputs, np.arange(16) % 3, batch_size=4, verbose=0, shuffle=False)
    assert np.all(before[0] != model.get_weights()[0])
    assert model.optimizer.iterations.numpy() == 4


def test_weight_decay_leaves_biases_and_normalisation_alone() -> None:
    optimizer = optimizer_of({"kind": "sgd", "weight_decay": 0.5})
    model = model_of(optimizer)
    optimizer.apply_gradients(
        [(tf.zeros_like(variable), variable) for variable in model.trainable_variables]
    )
    kernel, bias, gamma, beta = (variable.numpy() for variable in model.trainable_variables)
    np.testing.assert_allclose(kernel, 0.95)
    assert (bias, gamma, beta) == (1, 1, 0)


@pytest.mark.parametrize(("settings", "decay"), [("adamw", 0.004), ("adam", None)])
def test_adamw_decays_by_default(settings: str, decay: float | None) -> None:
    assert optimizer_of(settings).weight_decay == decay
    assert optimizer_of({"kind": settings, "weight_decay": 0}).weight_decay == 0


def test_gradients_are_clipped_together() -> None:
    optimizer = optimizer_of({"kind": "sgd", "clip_norm": 5})
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer.apply_gradients(zip([tf.constant(30.0), tf.constant(40.0)], variables, strict=True))
    np.testing.assert_allclose([variable.numpy() for variable in variables], [-0.3, -0.4])


def test_an_epoch_ends_with_the_average() -> None:
    optimizer = optimizer_of({"kind": "sgd", "ema": 0.75}, rate=1.0, steps=2)
    variable = tf.Variable(0.0)
    seen = []
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(-1.0), variable)])
        seen.append(variable.numpy())
    # After the first step the average is 0.25; the second leaves 2, of which it takes a quarter.
    np.testing.assert_allclose(seen, [1, 0.6875, 1.6875])
