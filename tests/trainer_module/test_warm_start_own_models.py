"""Warm start of models that are not of the zoo: what names and graphs tell of their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.trainer_data import Transformed, read_record
from tests.support.warm_data import (
    export,
    layer,
    load,
    prepare,
    using,
)
from trainer_module.base_model import stable_names
from trainer_module.trainer import run_fn

CUSTOM = """
import tf_keras

class Block(tf_keras.layers.Layer):
    def __init__(self):
        super().__init__()
        # Few variables: each costs the time of its graphs.
        self.first = tf_keras.layers.Dense(8, "relu", use_bias=False)
        self.second = tf_keras.layers.Dense(8, "relu", use_bias=False)
        self.norm = tf_keras.layers.BatchNormalization(center=False, scale=False)

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(8,), initializer="ones")
        self.constant = self.add_weight(
            name="constant", shape=(), trainable=False,
            initializer=lambda shape, dtype: __import__("tensorflow").constant(CONSTANT, dtype),
        )

    def call(self, x):
        return self.norm(self.first(x) * self.scale + self.second(x)) * self.constant

class Model(tf_keras.Model):
    def __init__(self, problem):
        super().__init__()
        size = problem.of_kind("categorical")[0].vocabulary_size
        self.embedding = tf_keras.layers.Embedding(size, 4, name="value")
        self.blocks = [Block(), Block()]
        self.answer = problem.make_output_layer()

    def call(self, x):
        hidden = tf_keras.layers.Concatenate()([x["amount"], self.embedding(x["company"])[:, 0]])
        for block in self.blocks:
            hidden = block(hidden)
        return self.answer(hidden)

def build_graph(problem, settings):
    inputs = problem.make_inputs()
    vectors = tf_keras.layers.Embedding(
        problem.of_kind("categorical")[0].vocabulary_size, 4, name="value"
    )(inputs["company"])
    hidden = tf_keras.layers.Concatenate()([inputs["amount"], tf_keras.layers.Flatten()(vectors)])
    for _ in range(2):
        hidden = Block()(hidden)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden))

def build_subclass(problem, settings):
    return Model(problem)

CONSTANT = 0.5
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builder", "strategy"), [("build_graph", "default"), ("build_subclass", "mirrored")]
)
def test_own_models_continue_from_their_weights(
    orders: Transformed,
    later_orders: Transformed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    builder: str,
    strategy: str,
) -> None:
    (tmp_path / "warm_custom.py").write_text(CUSTOM)
    monkeypatch.syspath_prepend(tmp_path)
    data = using(orders, f"warm_custom.{builder}")
    base = export(data, tmp_path / "base", epochs=6)
    cold = read_record(base)["history"]["loss"][0]
    train = {"strategy": strategy, "epochs": 1, "batch_size": 16 if strategy == "mirrored" else 32}
    monkeypatch.setattr("warm_custom.CONSTANT", 0.25)
    job = prepare(data, tmp_path / "warm", base, **train)
    assert job.notes == [f"warm start: from {base}, all weights"]
    old = {w.name.rpartition("/")[2]: w.numpy() for w in load(base).weights}
    new = {w.name.rpartition("/")[2]: w.numpy() for w in job.model.weights}
    np.testing.assert_array_equal(new["moving_mean:0"], old["moving_mean:0"])
    assert old["moving_mean:0"].any()
    assert (old["constant:0"], new["constant:0"]) == (0.5, 0.25)
    monkeypatch.setattr("warm_custom.CONSTANT", 0.5)
    fn_args = data.fn_args(tmp_path / "again", train=train)
    fn_args.base_model = base
    run_fn(fn_args)
    base = fn_args.serving_model_dir
    assert read_record(base)["history"]["loss"][0] < cold / 2

    changed = using(later_orders, f"warm_custom.{builder}")
    job = prepare(changed, tmp_path / "later", base, **train)
    was, now = load(base).get_layer("value").get_weights()[0], layer(job.model, "value")[0]
    if builder == "build_graph":
        np.testing.assert_array_equal(now[[3, 2, 0]], was[:3])
    else:
        # A model without a graph does not say which column the layer is for.
        fresh = prepare(changed, tmp_path / "fresh", None, **train).model
        fresh(changed.problem.make_inputs())
        np.testing.assert_array_equal(now, layer(fresh, "value")[0])
        assert any("value may depend on values or classes" in note for note in job.notes)


def test_generated_names_count_from_0() -> None:
    names = ["dense_7/kernel", "dense_10/kernel", "b/dense_3/w", "block_2/w", "dense_9x/w"]
    assert list(stable_names(names, {"dense"}).values()) == [
        "dense#0/kernel",
        "dense#1/kernel",
        "b/dense#0/w",
        "block_2/w",
        "dense_9x/w",
    ]
