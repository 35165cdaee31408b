"""The model for tables: what its layers compute, and how it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import Transformed
from tests.support.warm_data import export, layer, load, prepare, using
from trainer_module.data.loading import measure_quartiles
from trainer_module.families.supervised.losses import make_loss
from trainer_module.families.supervised.models.members import (
    MembersLoss,
    MembersMean,
    NumberVectors,
    silu,
)
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task, TrainerSettings
from trainer_module.training.building import build_model

SMALL = {"members": 3, "hidden_units": [8, 8], "dropout": 0.0}
CLASSES = {Task.BINARY: ("no", "yes"), Task.MULTICLASS: ("a", "b", "c"), Task.REGRESSION: ()}


def test_activation_and_its_gradient_are_those_of_tensorflow() -> None:
    values = tf.linspace(-30.0, 30.0, 301)
    found = {}
    for function in (silu, tf.nn.silu):
        with tf.GradientTape() as tape:
            tape.watch(values)
            output = function(values)
        found[function] = [output, tape.gradient(output, values, tf.sin(values))]
    for one, other in zip(found[silu], found[tf.nn.silu], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "class_weights"), [(Task.MULTICLASS, (0.5, 7.0, 2.0)), (Task.REGRESSION, ())]
)
def test_loss_is_the_mean_of_the_losses_of_members(
    task: Task, class_weights: tuple[float, ...]
) -> None:
    """The loss of training is the mean of the members' losses, by example: each has a weight."""
    problem = Problem(
        task,
        "y",
        CLASSES[task],
        (),
        label_mean=5.0,
        label_deviation=20.0,
        class_weights=class_weights[: len(CLASSES[task])],
    )
    hidden = tf.random.stateless_normal([16, 4, 8], [1, 2])
    scale, shift = problem.label_deviation, problem.class_shift
    mean = MembersMean(problem.output_units, task, scale, shift)
    logits = mean(hidden, training=True)
    labels = tf.constant([[i % max(2, problem.output_units)] for i in range(16)], tf.float32)
    loss, activation = make_loss(problem, None), problem.make_activation()
    of_members = tf.einsum("bkd,kdu->kbu", hidden, mean.kernel)
    weights = tf.constant([0.0, 20.0, 1.0, 0.1] * 4)
    alone = [float(loss(labels, activation(member), weights)) for member in of_members]
    of_mean, output = float(loss(labels, activation(logits), weights)), activation(logits)
    together = MembersLoss(loss, [mean])
    assert float(together(labels, output, weights)) == pytest.approx(np.mean(alone), rel=1e-4)
    assert of_mean < np.mean(alone)
    mean(hidden, training=True)
    mean(hidden)
    evaluated = float(together(labels, output, weights))
    assert evaluated == pytest.approx(of_mean), "what is evaluated is the mean alone"
    again = tf_keras.losses.deserialize(tf_keras.losses.serialize(together))
    assert float(again(labels, output, weights)) == pytest.approx(of_mean)


def test_other_losses_are_not_replaced() -> None:
    number = (TransformedFeature("x", "numeric", (1,)),)
    problem = Problem(Task.REGRESSION, "y", (), number, loss="mae")
    settings = TrainerSettings(label="y", task="regression", model=ModelSettings(**SMALL))
    model = build_model(problem, settings, tf.distribute.get_strategy(), steps_per_epoch=5)
    assert not isinstance(model.loss, MembersLoss)


def test_numbers_are_scaled_by_the_middle_half_and_clipped_smoothly() -> None:
    vectors = NumberVectors([1.0], [0.5], size=3)
    found = vectors(tf.constant([[1.0], [3.0], [-1.0], [1e9]])).numpy()
    assert found.shape == (4, 3)
    np.testing.assert_allclose(found[:, 0], [0, 1 / np.sqrt(1 + 1 / 9), -0.9486833, 3], rtol=1e-5)
    far = vectors(tf.constant([[1e25], [3e38], [np.inf], [-np.inf]])).numpy()
    np.testing.assert_allclose(far[:, 0], [3, 3, 3, -3], rtol=1e-5)
    constant = NumberVectors([1.0], [0.0], size=3)(tf.constant([[np.inf], [-3e38]])).numpy()
    np.testing.assert_array_equal(constant[:, 0], 0)
    again = NumberVectors.from_config(vectors.get_config())
    assert again.get_config() == vectors.get_config()


@pytest.mark.slow
def test_warm_start_follows_the_columns(
    orders: Transformed, later_orders: Transformed, tmp_path: Path
) -> None:
    orders, later_orders = (using(data, "tabular", **SMALL) for data in (orders, later_orders))
    base = export(orders, tmp_path / "base", epochs=1)
    fresh = prepare(later_orders, tmp_path / "fresh", None).model
    job = prepare(later_orders, tmp_path / "warm", base)
    old, new = load(base), job.model
    # amount, bonus, zip; it was amount, old, zip.
    for was, start, now in zip(*(layer(m, "numbers") for m in (old, fresh, new)), strict=True):
        np.testing.assert_array_equal(now[[0, 2]], was[[0, 2]])
        np.testing.assert_array_equal(now[1], start[1])
    first = next(x.name for x in old.layers if x.name.startswith("members_dense"))
    name = next(x.name for x in new.layers if x.name.startswith("members_dense"))
    (signs, kernel, _), (signs_now, kernel_now, _) = layer(old, first), layer(new, name)
    # 4 numbers for each of three columns, then those of the company.
    kept = [*range(4), *range(8, 20)]
    np.testing.assert_array_equal(kernel_now[kept], kernel[kept])
    np.testing.assert_array_equal(signs_now[:, kept], signs[:, kept])
    was, now = layer(old, "output"), layer(new, "output")
    np.testing.assert_array_equal(now[0][..., [0, 1, 3]], was[0])


@pytest.mark.slow
def test_quartiles_are_those_of_the_train_split(houses: Transformed, tmp_path: Path) -> None:
    train = prepare(houses, tmp_path, None).train
    in_memory = measure_quartiles(train.reader, train.content)
    found = np.quantile(train.content.tensors["size"], [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(in_memory["size"].ravel(), found, rtol=1e-6)
    from_files = measure_quartiles(train.reader, replace(train.content, tensors=None))
    np.testing.assert_array_equal(from_files["size"], in_memory["size"])
