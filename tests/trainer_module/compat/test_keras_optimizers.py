"""What is changed of Keras's optimizers, beside Keras's own.

Ours are subclasses, so that the classes of the library are as it comes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from trainer_module.compat import keras
from trainer_module.compat.insides import Known
from trainer_module.compat.keras import (
    AfterUpdates,
    RatesByVariable,
    let_replicas_share_rate,
    with_fused_updates,
)

SPARSE = 1
"""Rows of which a gradient stays sparse."""
OPTIMIZERS = [
    (tf_keras.optimizers.Adam, {}, SPARSE),
    (tf_keras.optimizers.AdamW, {"global_clipnorm": 0.5}, keras.MAX_DENSE_ELEMENTS),
    (tf_keras.optimizers.RMSprop, {"momentum": 0.5}, keras.MAX_DENSE_ELEMENTS),
]
ROWS = 50
SGD = tf_keras.optimizers.SGD
WITH_OWN_STEPS = ("Adam", "AdamW", "RMSprop")

OtherCode: TypeAlias = Callable[[pytest.MonkeyPatch, str, str], None]


def model_of(optimizer: tf_keras.optimizers.Optimizer, dtype: str = "float32") -> tf_keras.Model:
    """An embedding, most rows of which come up in no step, and a dense layer."""
    tf_keras.utils.set_random_seed(3)
    category = tf_keras.Input([1], dtype=tf.int64)
    rows = tf_keras.layers.Embedding(ROWS, 4, dtype=dtype, name="rows")(category)
    output = tf_keras.layers.Dense(1, dtype=dtype, name="deep")(tf_keras.layers.Flatten()(rows))
    model = tf_keras.Model(category, output)
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def take_steps(model: tf_keras.Model, steps: int) -> None:
    generator = np.random.default_rng(5)
    categories = generator.integers(0, ROWS // 2, [steps, 8, 1])
    for batch in categories:
        model.train_on_batch(batch, np.sin(batch))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options", "most_dense"), OPTIMIZERS)
def test_weights_are_those_of_keras(
    kind: Any,
    options: Any,
    most_dense: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that did not come up move as well: the means that they had fade out."""
    monkeypatch.setattr(keras, "MAX_DENSE_ELEMENTS", most_dense)
    usual = model_of(kind(0.01, **options))
    fused = model_of(with_fused_updates(kind)(0.01, **options))
    for model in (usual, fused):
        take_steps(model, 30)
    assert [w.name for w in usual.optimizer.variables] == [
        w.name for w in fused.optimizer.variables
    ]
    for expected, found in zip(
        usual.get_weights() + [w.numpy() for w in usual.optimizer.variables],
        fused.get_weights() + [w.numpy() for w in fused.optimizer.variables],
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_fused_optimizer_continues_from_a_checkpoint_of_keras(tmp_path: Path) -> None:
    usual = model_of(tf_keras.optimizers.Adam(0.01))
    fused = model_of(with_fused_updates(tf_keras.optimizers.Adam)(0.01))
    take_steps(usual, 3)
    take_steps(fused, 1)
    path = tf.train.Checkpoint(model=usual).save(str(tmp_path / "usual"))
    tf.train.Checkpoint(model=fused).restore(path).assert_consumed()
    for model in (usual, fused):
        take_steps(model, 3)
    for expected, found in zip(usual.get_weights(), fused.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_averages_are_read_after_the_gradient_arrives(
    is_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The averages contain the updates of workers that finished during the step."""
    monkeypatch.setattr(keras, "MAX_DENSE_ELEMENTS", SPARSE)
    variable = tf.Variable(tf.zeros([2]))
    optimizer = with_fused_updates(tf_keras.optimizers.Adam)(0.01)
    optimizer.build([variable])
    *_, mean, square = optimizer.variables

    def wait_for_another_worker(gradient: np.ndarray) -> np.ndarray:
        time.sleep(0.05)
        mean.assign([2.0, 2.0])
        square.assign([4.0, 4.0])
        return gradient

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        gradient = tf.numpy_function(
            wait_for_another_worker, [gradient * 2], tf.float32, stateful=False
        )
        gradient = tf.ensure_shape(gradient, [2])
        sparse = tf.IndexedSlices(gradient, tf.range(2), tf.constant([2]))
        optimizer.apply_gradients([(sparse if is_sparse else gradient, variable)])

    step(tf.zeros([2]))
    np.testing.assert_allclose(mean, [1.8, 1.8], rtol=1e-6)
    np.testing.assert_allclose(square, [3.996, 3.996], rtol=1e-6)


def test_unknown_update_code_is_left_to_keras(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, other_code: OtherCode
) -> None:
    adam = tf_keras.optimizers.Adam
    for module, prints in keras._FUSED.items():
        for path in prints:
            keras._is_fused_known.cache_clear()
            with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
                other_code(patch, module, f"{path}.update_step" if path in WITH_OWN_STEPS else path)
                assert with_fused_updates(adam) is adam
            (line,) = [line for line in caplog.messages if line.startswith("slower")]
            assert f"{module}:{path}" in line
            caplog.clear()
    keras._is_fused_known.cache_clear()


class Slower(RatesByVariable):
    """Half the rate for one variable."""

    rates_used_for = "train.test"

    def rate_factor(self, variable: tf.Variable) -> float:
        return 0.5 if variable.name == "second:0" else 1.0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (tf_keras.optimizers.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
        (tf_keras.optimizers.AdamW, {"weight_decay": 0.1}),
    ],
)
def test_each_variable_has_its_learning_rate(kind: Any, options: Any) -> None:
    """As two of Keras's optimizers do, of which one has half the rate."""
    fused = with_fused_updates(kind)
    both = type(kind.__name__, (Slower, fused), {})(0.2, **options)
    separate = kind(0.2, **options), kind(0.1, **options)
    names = ("first", "second")
    expected, found = ([tf.Variable([1.0, 2.0], name=name) for name in names] for _ in range(2))
    for step in range(3):
        gradient = tf.constant([0.5, float(step)])
        both.apply_gradients([(gradient, variable) for variable in found])
        for optimizer, variable in zip(separate, expected, strict=True):
            optimizer.apply_gradients([(gradient, variable)])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    assert float(both.learning_rate) == float(np.float32(0.2))


class Watching(AfterUpdates):
    """Notes the steps, and what a variable is then."""

    updates_used_for = "train.test"
    seen: list[tuple[int, float]]
    watched: tf.Variable

    def after_updates(self, distribution: tf.distribute.Strategy, step: tf.Tensor) -> None:
        self.seen.append((int(step), float(self.watched)))


def test_after_updates_sees_the_updated_variable() -> None:
    """The average of a variable, too, which Keras puts in its place every two steps."""
    kind = tf_keras.optimizers.SGD
    options = {"use_ema": True, "ema_momentum": 0.75, "ema_overwrite_frequency": 2}
    ours, stock = type("SGD", (Watching, kind), {})(1.0, **options), kind(1.0, **options)
    ours.watched, variable = tf.Variable(0.0), tf.Variable(0.0)
    ours.seen, expected = [], []
    for step in range(3):
        ours.apply_gradients([(tf.constant(-1.0), ours.watched)])
        stock.apply_gradients([(tf.constant(-1.0), variable)])
        expected.append((step + 1, float(variable)))
    assert list(map(tuple, ours.seen)) == expected


def test_replicas_with_shared_variables_assign_the_learning_rate() -> None:
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    strategy = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"])

    def learn(shares: bool) -> float:
        with strategy.scope():
            variable = tf.Variable(8.0)
            optimizer = tf_keras.optimizers.SGD(schedule)
            optimizer.build([variable])
            if shares:
                let_replicas_share_rate(optimizer, schedule)

        @tf.function
        def step() -> None:
            strategy.run(lambda: optimizer.apply_gradients([(tf.constant(1.0), variable)]))

        step()
        step()
        return float(variable)

    with pytest.raises(ValueError, match="aggregation"):
        learn(False)
    assert learn(True) == 8 - 2 * 0.5 - 2 * 0.25, "two replicas, two steps"


@pytest.mark.parametrize(
    ("known", "use"),
    [
        (keras._RATES, lambda: type("SGD", (Slower, SGD), {})(1.0)),
        (keras._UPDATES, lambda: type("SGD", (Watching, SGD), {})(1.0)),
        (keras._CURRENT_RATE, lambda: let_replicas_share_rate(None, lambda _: 0.0)),
    ],
    ids=["rates", "updates", "current rate"],
)
def test_another_keras_is_refused(
    known: Known, use: Callable[[], Any], refuses_others: Callable[[Known, Callable], None]
) -> None:
    refuses_others(known, use)
