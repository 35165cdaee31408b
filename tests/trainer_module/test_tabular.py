"""The model for tables: what its layers compute, under every strategy, and what is exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from trainer_data import Transformed, to_example
from warm_data import export, layer, load, prepare, using

from trainer_module.loops import LOOPS
from trainer_module.losses import make_loss
from trainer_module.models.building import build_model
from trainer_module.models.members import MembersLoss, MembersMean, NumberVectors
from trainer_module.numbers import measure_quartiles
from trainer_module.problem import Problem, TransformedFeature
from trainer_module.settings import Loop, ModelSettings, Task, TrainerSettings

SMALL = {"members": 3, "hidden_units": [8, 8], "dropout": 0.0}
CLASSES = {Task.BINARY: ("no", "yes"), Task.MULTICLASS: ("a", "b", "c"), Task.REGRESSION: ()}


@pytest.fixture(autouse=True)
def _plain_precision() -> Any:
    yield
    tf_keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("task", Task)
def test_each_member_learns_as_if_it_were_alone(task: Task) -> None:
    """The loss of training is the mean of the members' losses, by example: each has a weight."""
    problem = Problem(task, "y", CLASSES[task], (), label_mean=5.0, label_deviation=20.0)
    hidden = tf.random.stateless_normal([16, 4, 8], [1, 2])
    mean = MembersMean(problem.output_units, task, problem.label_deviation)
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


def test_a_loss_that_is_not_the_usual_one_is_left_alone() -> None:
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


def test_quartiles_are_those_of_the_train_split(houses: Transformed, tmp_path: Path) -> None:
    train = prepare(houses, tmp_path, None).train
    in_memory = measure_quartiles(train.reader, train.content)
    found = np.quantile(train.content.tensors["size"], [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(in_memory["size"].ravel(), found, rtol=1e-6)
    from_files = measure_quartiles(train.reader, replace(train.content, tensors=None))
    np.testing.assert_array_equal(from_files["size"], in_memory["size"])


@pytest.fixture(scope="module")
def tabular(trips: Transformed) -> Transformed:
    return using(trips, "tabular", **SMALL)


@pytest.fixture(scope="module")
def losses(tabular: Transformed, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Those of each epoch on one device."""
    return _losses(tabular, tmp_path_factory.mktemp("losses"))


def _losses(data: Transformed, directory: Path, **train: Any) -> list[float]:
    weights = {"0": 1.0, "1": 3.0}
    train = {"epochs": 2, "batch_size": 32, "class_weights": weights, **train}
    job = prepare(data, directory, None, **train)
    LOOPS[Loop(train.get("loop", "fit"))](job)
    return job.backup.history["loss"]


@pytest.mark.parametrize(
    ("strategy", "loop", "precision", "tolerance"),
    [
        ("one_device", "custom", "float32", 1e-4),
        ("mirrored", "fit", "mixed_float16", 0.1),
        ("mirrored", "custom", "mixed_bfloat16", 0.1),
        ("central_storage", "custom", "float32", 1e-4),
    ],
)
def test_it_learns_the_same_under_every_strategy(
    tabular: Transformed,
    losses: list[float],
    tmp_path: Path,
    strategy: str,
    loop: str,
    precision: str,
    tolerance: float,
) -> None:
    replicas = 1 if strategy == "one_device" else 2
    train = {"strategy": strategy, "loop": loop, "precision": precision}
    found = _losses(tabular, tmp_path, batch_size=32 // replicas, **train)
    assert found[-1] < found[0]
    np.testing.assert_allclose(found, losses, rtol=tolerance)


@pytest.mark.parametrize("kind", ["mlp", "tabular", "wide_deep"])
def test_what_is_exported_is_what_was_trained(
    trips: Transformed, tmp_path: Path, kind: str
) -> None:
    """With gaps everywhere, values never seen, one row alone, and columns in another order."""
    path = export(using(trips, kind, hidden_units=[8]), tmp_path, epochs=1)
    served = tf.saved_model.load(path).signatures["serving_default"]
    rows = [
        {"fare": 0.0, "constant": 0.1},
        {"fare": 1e9, "constant": -5.0, "miles": -1e9, "area": 7777, "company": "Never seen"},
        *({k: v for k, v in row.items() if k != "tipped"} for row in trips.evaluation[:6]),
    ]
    together = served(tf.constant([to_example(row) for row in rows]))["scores"].numpy()
    assert np.isfinite(together).all()
    turned = [dict(reversed(row.items())) for row in rows]
    alone = [served(tf.constant([to_example(row)]))["scores"].numpy()[0] for row in turned]
    np.testing.assert_allclose(alone, together, atol=1e-6)
    features = trips.transform(rows)
    names = {feature.name for feature in trips.problem.features}
    trained = load(path)({k: v for k, v in features.items() if k in names}).numpy()
    np.testing.assert_allclose(trained[:, 0], together[:, 1], atol=1e-6)


def test_what_was_learnt_follows_its_column(
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
