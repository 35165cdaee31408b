"""Steps of fewer operations come to what Keras's own optimizers come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from trainer_module.training.optimizers import lean_steps
from trainer_module.training.optimizers.lean_steps import with_lean_steps

OPTIMIZERS = [
    pytest.param(tf_keras.optimizers.Adam, {}, True, id="adam"),
    pytest.param(tf_keras.optimizers.AdamW, {"global_clipnorm": 0.5}, True, id="adamw"),
    pytest.param(tf_keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}, False, id="sgd"),
    pytest.param(tf_keras.optimizers.RMSprop, {"momentum": 0.5}, False, id="rmsprop"),
    pytest.param(tf_keras.optimizers.Lion, {}, False, id="lion"),
]
ROWS = 50


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


@pytest.mark.parametrize(("kind", "options", "shares"), OPTIMIZERS)
@pytest.mark.parametrize("most_dense", [lean_steps.MOST_DENSE, 1], ids=["dense", "sparse"])
def test_weights_are_those_of_keras(
    kind: Any,
    options: Any,
    shares: bool,
    most_dense: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that did not come up move as well: the means that they had fade out."""
    monkeypatch.setattr(lean_steps, "MOST_DENSE", most_dense)
    usual = model_of(kind(0.01, **options))
    lean = model_of(with_lean_steps(kind, shares)(0.01, **options))
    for model in (usual, lean):
        take_steps(model, 30)
    assert [w.name for w in usual.optimizer.variables] == [w.name for w in lean.optimizer.variables]
    for expected, found in zip(
        usual.get_weights() + [w.numpy() for w in usual.optimizer.variables],
        lean.get_weights() + [w.numpy() for w in lean.optimizer.variables],
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_training_that_keras_began_goes_on(tmp_path: Path) -> None:
    usual = model_of(tf_keras.optimizers.Adam(0.01))
    lean = model_of(with_lean_steps(tf_keras.optimizers.Adam, True)(0.01))
    take_steps(usual, 3)
    take_steps(lean, 1)
    path = tf.train.Checkpoint(model=usual).save(str(tmp_path / "usual"))
    tf.train.Checkpoint(model=lean).restore(path).assert_consumed()
    for model in (usual, lean):
        take_steps(model, 3)
    for expected, found in zip(usual.get_weights(), lean.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_variables_of_more_digits_keep_them() -> None:
    usual = model_of(tf_keras.optimizers.Adam(0.01), "float64")
    lean = model_of(with_lean_steps(tf_keras.optimizers.Adam, True)(0.01), "float64")
    for model in (usual, lean):
        take_steps(model, 10)
    for expected, found in zip(usual.get_weights(), lean.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_variable_takes_fewer_operations() -> None:
    usual, lean = tf_keras.optimizers.Adam, with_lean_steps(tf_keras.optimizers.Adam, True)
    of_rows = [operations(kind(), 2) - operations(kind(), 1) for kind in (usual, lean)]
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
