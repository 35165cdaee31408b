"""Insides of Keras's layers, models and metrics, against the public way where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from trainer_module.compat import keras
from trainer_module.compat.insides import Known

LAYERS = tf_keras.layers


class Own(tf_keras.Model):
    """A model whose layers only its code knows."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = LAYERS.Dense(1)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.dense(inputs)


def nested() -> tf_keras.Model:
    """A model with a model, and with layers that have layers."""
    inputs = tf_keras.Input((4, 8))
    inner = tf_keras.Sequential([LAYERS.Dense(8, input_shape=(4, 8))])
    hidden = inner(inputs)
    hidden = LAYERS.MultiHeadAttention(2, 4)(hidden, hidden)
    hidden = LAYERS.Bidirectional(LAYERS.GRU(4))(hidden)
    return tf_keras.Model(inputs, LAYERS.Dense(1)(hidden))


@pytest.mark.parametrize(("name", "graph"), [("sigmoid", True), ("softmax", False)])
def test_logits_are_those_of_the_probabilities(name: str, graph: bool) -> None:
    logits = tf.constant([[-40.0, 0.5, 40.0]])

    def find() -> tf.Tensor:
        probabilities = LAYERS.Activation(name)(logits)
        return keras.logits_of(probabilities)

    found = tf.function(find)() if graph else find()
    np.testing.assert_array_equal(found, logits)
    assert keras.logits_of(tf.sigmoid(logits)) is None


def test_nested_layers_and_their_weights_are_found_once() -> None:
    model = nested()
    found = keras.layers_within(model)
    assert len(found) == len({id(layer) for layer in found})
    assert {id(layer) for layer in found} < {id(part) for part in model.submodules}, (
        "which have the layer that Bidirectional copies as well"
    )
    own = [id(w) for layer in found for w in keras.own_weights(layer)]
    assert sorted(own) == sorted(id(w) for w in model.trainable_weights), "each weight once"
    assert not keras.own_weights(model.layers[-2]), "Bidirectional has those of its layers"


def test_only_graphs_of_layers_are_graph_networks() -> None:
    assert keras.is_graph_network(nested())
    assert keras.is_graph_network(tf_keras.Sequential([LAYERS.Dense(1, input_shape=(2,))]))
    assert not keras.is_graph_network(Own())


def test_synchronized_layer_equals_one_of_the_constructor() -> None:
    """Statistics of two replicas are those of one: `models/synchronised_statistics.py`."""
    made, changed = LAYERS.BatchNormalization(synchronized=True), LAYERS.BatchNormalization()
    keras.synchronize(changed)
    changed.build((None, 4, 4, 3))
    made.build((None, 4, 4, 3))
    assert {**changed.get_config(), "name": ""} == {**made.get_config(), "name": ""}
    assert (changed.synchronized, changed.fused) == (made.synchronized, made.fused)


def test_changed_metric_compares_changed_labels_and_outputs() -> None:
    """In `evaluate` as when it is called, and with a model that others can load."""
    labels, numbers = np.float32([[1], [2], [4]]), np.float32([[2], [3], [4]])
    weights = np.float32([1, 2, 3])
    expected = tf_keras.metrics.MeanSquaredError()(10 * labels, numbers + 1, weights)
    metric = tf_keras.metrics.MeanSquaredError()
    changed = keras.change_compared(metric, lambda y, p: (10 * y, p + 1))
    assert changed is metric
    np.testing.assert_allclose(metric(labels, numbers, weights), expected)
    model = tf_keras.Sequential([LAYERS.Activation("linear", input_shape=(1,))])
    model.compile(loss="mse", weighted_metrics=[metric])
    found = model.evaluate(numbers, labels, sample_weight=weights, verbose=0, return_dict=True)
    np.testing.assert_allclose(found["mean_squared_error"], expected)
    again = tf_keras.metrics.deserialize(tf_keras.metrics.serialize(metric))
    assert type(again) is tf_keras.metrics.MeanSquaredError


METRIC, MODEL = tf_keras.metrics.MeanSquaredError(), tf_keras.Sequential()


@pytest.mark.parametrize(
    ("known", "use"),
    [
        (keras._LOGITS, lambda: keras.logits_of(tf.constant(0.5))),
        (keras._LAYERS_WITHIN, lambda: keras.layers_within(MODEL)),
        (keras._OWN_WEIGHTS, lambda: keras.own_weights(MODEL)),
        (keras._GRAPH_NETWORKS, lambda: keras.is_graph_network(MODEL)),
        (keras._SYNCHRONIZED, lambda: keras.synchronize(MODEL)),
        (keras._METRICS, lambda: keras.change_compared(METRIC, lambda *y: y)),
    ],
    ids=["logits", "layers", "own weights", "graph networks", "synchronised", "metrics"],
)
def test_another_keras_is_refused(
    known: Known, use: Callable[[], Any], refuses_others: Callable[[Known, Callable], None]
) -> None:
    refuses_others(known, use)
