"""Regressions that learn the logarithm of their label: the choice, the model and its bias."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import Transformed, read_record, to_example, transformed_once
from tests.support.warm_data import export, using
from trainer_module.data.examples import Content, Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.log_target import with_target
from trainer_module.families.supervised.tasks.layers import (
    BiasFactor,
    FromLogarithm,
    correct_bias,
)
from trainer_module.families.supervised.tasks.numbers import RegressionTask, bias_factor
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings

RANDOM = np.random.default_rng(3)
NUMBERS = RANDOM.normal(size=(600, 2)).astype(np.float32)
NOISE = RANDOM.normal(size=600)
PRODUCTS = np.exp(8 + NUMBERS[:, 0] + 0.5 * NUMBERS[:, 1] + 0.6 * NOISE)
SUMS = np.maximum(1, 100 + 40 * NUMBERS[:, 0] + 20 * NUMBERS[:, 1] + 20 * NOISE)


@pytest.fixture(scope="session")
def incomes(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    rows = [
        {"income": float(y), "years": float(x[0]), "hours": float(x[1])}
        for x, y in zip(NUMBERS, PRODUCTS, strict=True)
    ]
    settings = TrainerSettings.model_validate(
        {
            "label": "income",
            "task": "regression",
            "model": {"kind": "mlp", "hidden_units": [8]},
            "train": {"batch_size": 16, "learning_rate": 0.02},
        }
    )
    return transformed_once(tmp_path_factory, "incomes", rows[:400], rows[400:], settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model", "train"),
    [
        ("mlp", {}, {"epochs": 8, "early_stopping": True}),
        ("ensemble", {"trees": 40, "members": ["boosted", "linear"]}, {}),
    ],
)
def test_models_learn_logarithms_and_predict_means_in_the_labels_unit(
    incomes: Transformed, tmp_path: Path, kind: str, model: dict[str, Any], train: dict[str, Any]
) -> None:
    exported = export(using(incomes, kind, **model), tmp_path, **train)
    (note,) = [n for n in read_record(exported)["notes"] if n.startswith("target: ")]
    assert note.startswith("target: log")
    assert not [name for name in read_record(exported)["history"] if "bias_factor" in name]
    serve = tf.saved_model.load(exported).signatures["serving_default"]
    found = serve(tf.constant([to_example(row) for row in incomes.evaluation]))["value"].numpy()
    label = np.array([row["income"] for row in incomes.evaluation])
    assert 0.8 < found.mean() / label.mean() < 1.25
    assert np.corrcoef(np.log(found), np.log(label))[0, 1] > 0.8
    assert (found > 0).all()


def make_data(label: np.ndarray, target: str = "auto", **content: Any) -> TrainingData:
    features = (TransformedFeature("x", "numeric", (2,)),)
    task = RegressionTask(kind="regression", target=target)
    problem = Problem(task, "y", (), features)
    read = Content(np.ones(len(label), bool), **content)
    read.tensors = {"x": tf.constant(NUMBERS), "y": tf.constant(label[:, None], tf.float32)}
    read.add_labels(label, np.ones(len(label)))
    spec = {
        "x": tf.io.FixedLenFeature((2,), tf.float32),
        "y": tf.io.FixedLenFeature((1,), tf.float32),
    }
    split = Split(Reader([], spec, problem), read, 32, shuffle_seed=1)
    measured = replace(problem, label_mean=read.label_mean, label_deviation=read.label_deviation)
    return TrainingData(measured, split, split)


def choose(data: TrainingData, **train: Any) -> tuple[Problem, tuple[str, ...]]:
    settings = TrainerSettings.model_validate(
        {"label": "y", "task": data.problem.target.model_dump(), "train": train}
    )
    chosen, notes = with_target(data, settings, tf.distribute.get_strategy(), {})
    return chosen.problem, notes


@pytest.mark.slow
def test_auto_learns_logarithms_only_where_they_are_clearly_better() -> None:
    chosen, _ = choose(make_data(PRODUCTS))
    assert chosen.log_range is not None
    assert chosen.label_mean == pytest.approx(np.log(PRODUCTS).mean(), rel=1e-5)
    by_time, _ = choose(make_data(PRODUCTS, times=np.arange(600)), loss={"kind": "mae"})
    assert by_time.log_range is not None
    plain = make_data(SUMS)
    assert plain.train.content.log_deviation > 0.5, "it is compared"
    chosen, (note,) = choose(plain)
    assert chosen == plain.problem
    assert note.startswith("target: plain")
    for data in (make_data(PRODUCTS - PRODUCTS.min()), make_data(PRODUCTS, "plain")):
        assert choose(data) == (data.problem, ())
    own = choose(make_data(PRODUCTS), loss={"kind": "huber", "delta": 100})
    assert own[0].log_range is None


def test_logarithms_of_labels_that_are_not_positive_are_refused() -> None:
    label = PRODUCTS.copy()
    label[:3] = [0, -7.5, -1]
    with pytest.raises(
        TrainingError, match=r"task\.target: log .* 3 of the 600 rows .*'y'.* -7\.5"
    ):
        choose(make_data(label, "log"))


def logarithms(**options: Any) -> Problem:
    task = RegressionTask(kind="regression", target="log", **options)
    features = (TransformedFeature("x", "numeric", (2,)),)
    return Problem(
        task, "y", (), features, label_mean=8.0, label_deviation=0.5, log_range=(6.0, 10.0)
    )


def test_quantiles_are_exact_and_only_the_number_is_corrected() -> None:
    problem = logarithms(quantiles=[0.1, 0.9])
    model = tf_keras.Sequential([tf_keras.Input((3,)), problem.make_activation()])
    correct_bias(model, 1.25)
    found = model(tf.constant([[0.0, 0.0, 0.0], [99.0, 99.0, 99.0]])).numpy()
    ends = [NormalDist(8, 0.5).inv_cdf(level) for level in (0.1, 0.9)]
    np.testing.assert_allclose(found[0], np.exp([8 + np.log(1.25), *ends]), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.exp([10 + np.log(1.25), 10, 10]), rtol=1e-5)
    loss = problem.make_loss()
    right = loss([[found[0, 0]]], tf.constant(found[:1])).numpy()
    assert right < loss([[10 * found[0, 0]]], tf.constant(found[:1])).numpy()


def test_gradients_are_those_of_standardised_logarithms_even_outside_the_range() -> None:
    problem = logarithms()
    layer, loss = problem.make_activation(), problem.make_loss()
    learnt = tf.Variable([[0.5], [20.0]])
    label = np.exp([[8.0], [8.0]]).astype(np.float32)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(loss.call(label, layer(learnt, training=True)))
    (gradient,) = [tape.gradient(total, learnt).numpy()]
    # The label is 0 in standard deviations; the second prediction is clipped to 4.
    np.testing.assert_allclose(gradient, [[2 * 0.5], [2 * 4.0]], rtol=1e-4)


def test_factor_is_the_ratio_of_sums_less_its_noise() -> None:
    predicted, weight = np.exp(RANDOM.normal(size=500)), RANDOM.uniform(0.5, 2, 500)
    label = 1.5 * predicted * np.exp(0.3 * RANDOM.normal(size=500))
    metric = BiasFactor()
    metric.update_state([[9.0]], tf.constant([[1.0]]))
    metric.reset_state()
    for rows in (slice(0, 200), slice(200, 500)):
        outputs = tf.constant(np.stack([predicted, 99 * predicted], 1)[rows], tf.float32)
        metric.update_state(label[rows, None], outputs, weight[rows])
    factor = float(metric.result())
    assert factor == pytest.approx((weight @ label) / (weight @ predicted), rel=1e-2)
    unseen = np.append(predicted, np.nan)
    found = bias_factor(1e15 * np.append(label, 1e9), 1e15 * unseen, np.append(weight, 1))
    assert found == pytest.approx(factor, rel=1e-4)
    few = bias_factor(np.array([1.0, 1.0, 6.0]), np.ones(3), None)
    assert 1 <= few < 2, "a single large label hardly counts"
    assert bias_factor(label, np.full(500, np.nan), None) == 1


def test_layer_is_saved_with_its_factor(tmp_path: Path) -> None:
    model = tf_keras.Sequential([tf_keras.Input((1,)), FromLogarithm(0.0, 5.0)])
    correct_bias(model, 2.0)
    model.save(tmp_path / "model.keras")
    loaded = tf_keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(tf.constant([[1.0]])), [[2 * np.e]], rtol=1e-6)
