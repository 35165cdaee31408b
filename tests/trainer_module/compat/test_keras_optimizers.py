"""What is changed of Keras's optimizers, beside Keras's own.

Ours are subclasses, so that the classes of the library are as it comes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    (tf_keras.optimizers.Adam, {}, keras.MAX_DENSE_ELEMENTS),
    (tf_keras.optimizers.Adam, {}, SPARSE),
    (tf_keras.optimizers.AdamW, {"global_clipnorm": 0.5}, keras.MAX_DENSE_ELEMENTS),
    (tf_keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}, SPARSE),
    (tf_keras.optimizers.RMSprop, {"momentum": 0.5}, keras.MAX_DENSE_ELEMENTS),
    (tf_keras.optimizers.RMSprop, {}, SPARSE),
    (tf_keras.optimizers.Lion, {}, keras.MAX_DENSE_ELEMENTS),
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


def test_a_training_that_keras_began_goes_on(tmp_path: Path) -> None:
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


def test_variables_of_more_digits_keep_them() -> None:
    usual = model_of(tf_keras.optimizers.Adam(0.01), "float64")
    fused = model_of(with_fused_updates(tf_keras.optimizers.Adam)(0.01), "float64")
    for model in (usual, fused):
        take_steps(model, 10)
    for expected, found in zip(usual.get_weights(), fused.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_variable_takes_fewer_operations() -> None:
    usual, fused = tf_keras.optimizers.Adam, with_fused_updates(tf_keras.optimizers.Adam)
    of_rows = [operations(kind(), 2) - operations(kind(), 1) for kind in (usual, fused)]
    assert of_rows[1] < 0.6 * of_rows[0]


def operations(optimizer: tf_keras.optimizers.Optimizer, embeddings: int) -> int:
    """What an update of so many variables consists of."""
    variables = [tf.Variable(tf.ones([ROWS, 4])) for _ in range(embeddings)]
    optimizer.build(variables)

    @tf.function
    def step(values: tf.Tensor, rows: tf.Tensor) -> None:
        gradient = tf.IndexedSlices(values, rows, tf.constant([ROWS, 4]))
        optimizer.apply_gradients([(gradient, variable) for variable in variables])

    graph = step.get_concrete_function(tf.ones([2, 4]), tf.constant([1, 1])).graph
    return sum(
        operation.type not in ("Const", "Placeholder") for operation in graph.get_operations()
    )


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("kind", [tf_keras.optimizers.Adam, tf_keras.optimizers.RMSprop])
def test_steps_stay_small_while_workers_update_the_same_variable(
    kind: Any, is_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is at most about three learning rates, whatever the gradients are."""
    monkeypatch.setattr(keras, "MAX_DENSE_ELEMENTS", SPARSE)
    rate, rows, rounds, steps = 0.01, 20_000, 60, 3
    variable = tf.Variable(tf.zeros([rows, 10]))
    optimizer = with_fused_updates(kind)(rate)
    optimizer.build([variable])

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        sparse = tf.IndexedSlices(gradient, tf.range(rows), tf.shape(gradient))
        optimizer.apply_gradients([(sparse if is_sparse else gradient, variable)])

    def work(worker: int) -> None:
        for _ in range(steps):
            step(tf.fill([rows, 10], float(worker)))

    with ThreadPoolExecutor(2) as workers:
        for _ in range(rounds):
            for values in (variable, *optimizer.variables):
                values.assign(tf.zeros_like(values))
            list(workers.map(work, range(2)))
            assert np.abs(variable.numpy()).max() < 2 * steps * 3 * rate


@pytest.mark.parametrize("is_sparse", [False, True])
def test_averages_are_read_when_the_gradient_has_arrived(
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


def test_other_updates_are_left_to_keras(
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
        (tf_keras.optimizers.RMSprop, {"momentum": 0.9}),
    ],
)
def test_a_variable_learns_at_its_rate(kind: Any, options: Any) -> None:
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


def test_what_follows_updates_sees_them() -> None:
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


def test_what_is_forgotten_is_saved_no_more(tmp_path: Path) -> None:
    optimizer = type("SGD", (Watching, tf_keras.optimizers.SGD), {})(1.0)
    optimizer.noted = tf.Variable(1.0)
    names = []
    for _ in range(2):
        path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "saved"))
        names.append([n for n, _ in tf.train.list_variables(path) if "noted" in n])
        optimizer.forget_saved("noted")
    assert names == [["optimizer/noted/.ATTRIBUTES/VARIABLE_VALUE"], []]


def test_replicas_that_share_variables_assign_the_rate() -> None:
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
