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
from trainer_module.loops.losses import OneHotLoss, make_loss
from trainer_module.problem import Problem
from trainer_module.settings import Task, TrainSettings

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
        (None, Task.BINARY, -np.log(SCORE)),
        ("cross_entropy", Task.BINARY, -np.log(SCORE)),
        ("cross_entropy", Task.MULTICLASS, -np.log(SCORE)),
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
        (None, Task.REGRESSION, ERROR**2),
        ("mse", Task.REGRESSION, ERROR**2),
        ("mae", Task.REGRESSION, abs(ERROR)),
        ({"kind": "huber", "delta": 2}, Task.REGRESSION, [0.125, 0.5, 2 * (6 - 1)]),
        ("huber", Task.REGRESSION, [0.125, 0.5, 3 * (6 - 1.5)]),
    ],
)
def test_losses_are_what_they_are_called(loss: Any, task: Task, expected: Any) -> None:
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


def test_keras_makes_it_of_its_config_again() -> None:
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


def test_a_loss_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_losses.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    zeros, ones = tf.zeros([2, 1]), tf.ones([2, 1])
    assert list(loss_of("my_losses.twice", Task.REGRESSION)(zeros, ones)) == [2, 2]
    weighed = {"kind": "my_losses.Weighed", "options": {"factor": 5}}
    assert float(loss_of(weighed, Task.REGRESSION)(zeros, ones)) == 5
    for bad, message in [
        ("my_losses.Other", "right is a subclass of tf_keras.losses.Loss, or a function"),
        ("my_losses.thrice", "train.loss 'my_losses.thrice': module 'my_losses' has no function"),
        ("your_losses.twice", "cannot import 'your_losses'"),
        ({"kind": "my_losses.twice", "options": {"factor": 5}}, "which takes no options"),
    ]:
        with pytest.raises(TrainingError, match=message):
            loss_of(bad, Task.REGRESSION)
