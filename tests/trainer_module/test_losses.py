"""What the losses come to, against their definitions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.families.supervised.losses import OneHotLoss, PriorLoss, make_loss
from trainer_module.problem import Problem
from trainer_module.settings import Task, TrainSettings
from trainer_module.training.building import regularize

SCORE = np.array([0.9, 0.6, 0.2])
"""Those of the class that an example has."""
SCORES = np.array([[0.9, 0.05, 0.05], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2]])
ERROR = np.array([0.5, -1.0, 6.0])

SMOOTHED = np.array([0.8, 0.1, 0.1])
"""A label of three classes of which 0.3 is spread."""


def loss_of(loss: Any, task: Task) -> Any:
    classes = {Task.BINARY: ("no", "yes"), Task.MULTICLASS: ("a", "b", "c")}.get(task, ())
    problem = Problem(task, "y", classes, (), label_deviation=3.0)
    return make_loss(problem, TrainSettings(loss=loss).loss)


@pytest.mark.parametrize(
    ("loss", "task", "expected"),
    [
        ("cross_entropy", Task.BINARY, -np.log(SCORE)),
        ({"kind": "focal", "gamma": 3}, Task.BINARY, -((1 - SCORE) ** 3) * np.log(SCORE)),
        ({"kind": "focal", "gamma": 3}, Task.MULTICLASS, -((1 - SCORE) ** 3) * np.log(SCORE)),
        (
            {"kind": "cross_entropy", "label_smoothing": 0.2},
            Task.BINARY,
            -0.9 * np.log(SCORE) - 0.1 * np.log(1 - SCORE),
        ),
        (
            {"kind": "cross_entropy", "label_smoothing": 0.3},
            Task.MULTICLASS,
            [-SMOOTHED[[(j - i) % 3 for j in range(3)]] @ np.log(SCORES[i]) for i in range(3)],
        ),
        ("mse", Task.REGRESSION, ERROR**2),
        ("mae", Task.REGRESSION, abs(ERROR)),
        ({"kind": "huber", "delta": 2}, Task.REGRESSION, [0.125, 0.5, 2 * (6 - 1)]),
        ("huber", Task.REGRESSION, [0.125, 0.5, 3 * (6 - 1.5)]),
    ],
)
def test_losses_equal_their_formulas(loss: Any, task: Task, expected: Any) -> None:
    labels, outputs = {
        Task.BINARY: ([[1], [1], [0]], [[0.9], [0.6], [0.8]]),
        Task.MULTICLASS: ([[0], [1], [2]], SCORES),
        Task.REGRESSION: (np.zeros((3, 1)), ERROR[:, np.newaxis]),
    }[task]
    found = loss_of(loss, task)
    label = tf.constant(labels, tf.float32 if task is Task.REGRESSION else tf.int64)
    per_example = found.call(label, tf.constant(outputs, tf.float32))
    np.testing.assert_allclose(per_example, expected, rtol=1e-4)
    np.testing.assert_allclose(
        found(label, tf.constant(outputs, tf.float32)), np.mean(expected), rtol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "shares", "weights"),
    [
        (Task.BINARY, (0.95, 0.05), (0.5, 10.0)),
        (Task.MULTICLASS, (0.7, 0.28, 0.02), (0.5, 1.2, 17.0)),
    ],
)
def test_class_weights_leave_learnt_probabilities_unchanged(
    task: Task, shares: tuple[float, ...], weights: tuple[float, ...]
) -> None:
    """What the weighed loss is least for is how frequent classes are, not how they are weighed."""
    names = ("a", "b", "c")[: len(shares)]
    problem = Problem(task, "y", names, (), class_weights=weights)
    logits = tf.Variable(tf.zeros([1, problem.output_units]))
    loss, activation = make_loss(problem, None), problem.make_activation()
    counts = tf.constant([s * w for s, w in zip(shares, weights, strict=True)])
    labels = tf.range(len(shares))[:, tf.newaxis]
    optimizer = tf_keras.optimizers.SGD(1.0)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            output = tf.repeat(activation(logits), len(shares), 0)
            lost = tf.reduce_sum(loss.call(labels, output) * counts)
        optimizer.minimize(lost, [logits], tape=tape)

    for _ in range(300):
        step()
    found = activation(logits).numpy().ravel()
    known = shares[1:] if task is Task.BINARY else shares
    left_out = 1 - sum(f for f, s in zip(found, known, strict=True) if not s)
    np.testing.assert_allclose(
        [f for f, s in zip(found, known, strict=True) if s],
        [s * left_out for s in known if s],
        rtol=0.02,
    )


def test_losses_are_deserialized_by_keras() -> None:
    prior = PriorLoss(OneHotLoss(3), (0.0, 1.0, 2.0))
    again = tf_keras.losses.deserialize(tf_keras.losses.serialize(prior))
    labels, scores = tf.constant([[0], [1], [2]]), tf.constant(SCORES, tf.float32)
    assert float(again(labels, scores)) == float(prior(labels, scores))
    loss = OneHotLoss(3, 0.1, 2.0)
    again = tf_keras.losses.deserialize(tf_keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()


OWN = """
import tensorflow as tf
import tf_keras

def twice(labels, predictions):
    return 2 * tf.reduce_mean(tf.square(labels - predictions), -1)

class Weighed(tf_keras.losses.Loss):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, labels, predictions):
        return self.factor * tf.reduce_mean(tf.square(labels - predictions), -1)

class Other:
    pass
"""


def test_own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_losses.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    zeros, ones = tf.zeros([2, 1]), tf.ones([2, 1])
    assert list(loss_of("my_losses.twice", Task.REGRESSION)(zeros, ones)) == [2, 2]
    weighed = {"kind": "my_losses.Weighed", "options": {"factor": 5}}
    assert float(loss_of(weighed, Task.REGRESSION)(zeros, ones)) == 5
    for bad, message in [
        ("my_losses.Other", r"tf_keras\.losses\.Loss"),
        ("my_losses.thrice", r"train\.loss 'my_losses\.thrice'"),
        ("your_losses.twice", "cannot import 'your_losses'"),
    ]:
        with pytest.raises(TrainingError, match=message):
            loss_of(bad, Task.REGRESSION)


def test_kernels_count_in_the_loss_unless_they_are_frozen() -> None:
    """As `kernel_regularizer` of each layer does, in a model within the model as well."""
    inner = tf_keras.Sequential([tf_keras.layers.Dense(2, input_shape=(3,))])
    layers = [inner, tf_keras.layers.LSTM(2), tf_keras.layers.Dense(1)]
    model = tf_keras.Sequential([tf_keras.layers.Input((4, 3)), *layers])
    regularize(model, 0.1)
    kernels = [w.numpy() for w in model.weights if "bias" not in w.name]
    assert len(kernels) == 4
    assert float(sum(model.losses)) == pytest.approx(0.1 * sum((k**2).sum() for k in kernels))
    inner.trainable = False
    learnt = 0.1 * sum((kernel**2).sum() for kernel in kernels[1:])
    assert float(sum(model.losses)) == pytest.approx(learnt)
