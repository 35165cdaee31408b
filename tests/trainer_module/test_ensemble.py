"""Ensembles: each member in TensorFlow against its library, the weights and the calibration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from test_trees import ROWS, make_label, make_problem, make_tensors

from trainer_module.data.dealing import Folds, Parts
from trainer_module.families.supervised.ensemble.boosted import grow_boosted
from trainer_module.families.supervised.ensemble.linear import fit_linear
from trainer_module.families.supervised.ensemble.member import Member, forest_member
from trainer_module.families.supervised.ensemble.model import build_ensemble
from trainer_module.families.supervised.ensemble.weights import (
    Labels,
    calibration_error,
    divide_logits,
    select,
    temperature,
)
from trainer_module.families.supervised.trees import averaging
from trainer_module.families.supervised.trees.averaging import grow_averaged
from trainer_module.families.supervised.trees.forest import columns_of, split_columns
from trainer_module.families.supervised.trees.growing import TreeExamples
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task, TrainerSettings

FOLDS = Folds(Parts(np.arange(ROWS) % 5), 5)
NOTHING_HELD_OUT = Folds(Parts(np.full(ROWS, -1)), 1)


def make_examples(task: Task) -> TreeExamples:
    tensors = make_tensors(1)
    columns = columns_of(make_problem(task))
    weight = np.linspace(0.5, 1.5, ROWS, dtype=np.float32)
    return TreeExamples(columns, split_columns(tensors, columns), make_label(task, tensors), weight)


def predict(problem: Problem, member: Member, tensors: dict[str, tf.Tensor]) -> np.ndarray:
    model = build_ensemble(problem, {"only": member.build}, {"only": 1.0}, 1.0)
    return model(tensors).numpy()


def fit(kind: str, task: Task, folds: Folds) -> Member:
    problem, examples = make_problem(task), make_examples(task)
    if kind == "linear":
        return fit_linear(examples, problem, folds, seed=3)
    if kind == "boosted":
        settings = TrainerSettings(
            label="y", task=task, model=ModelSettings(kind="ensemble", trees=20)
        )
        return grow_boosted(examples, problem, settings, folds)
    return forest_member(problem, grow_averaged(kind, examples, problem, folds, 60, 3), kind)


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("boosted", Task.MULTICLASS),
        ("random", Task.BINARY),
        ("extra", Task.REGRESSION),
        ("linear", Task.MULTICLASS),
    ],
)
def test_each_member_learns_and_predicts_unseen_examples(kind: str, task: Task) -> None:
    problem, labels = make_problem(task), Labels(make_problem(task), make_examples(task).label)
    member = fit(kind, task, FOLDS)
    assert member.unseen.shape == (ROWS, problem.output_units)
    assert not np.isnan(member.unseen).any(), "each fold predicts the examples that it holds out"
    constant = np.full_like(member.unseen, 5000.0)
    if task is not Task.REGRESSION:
        counts = np.bincount(labels.values.astype(int)) / ROWS
        constant[:] = counts[1] if task is Task.BINARY else counts
    assert labels.loss(member.unseen) < labels.loss(constant)
    in_model = predict(problem, member, make_tensors(1))
    # The model has seen them: it predicts them at least as well.
    assert labels.loss(in_model.astype(np.float64)) < labels.loss(member.unseen) * 1.05


@pytest.mark.parametrize("task", Task)
def test_random_forest_in_tensorflow_equals_scikit_learns(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners: list[Any] = []
    make = averaging._learner

    def spy(*args: Any) -> Any:
        learners.append(make(*args))
        return learners[-1]

    monkeypatch.setattr(averaging, "_learner", spy)
    problem, examples = make_problem(task), make_examples(task)
    grown = grow_averaged("random", examples, problem, NOTHING_HELD_OUT, 30, seed=3)
    unseen = make_tensors(2, 300)
    means = averaging.column_means(examples)
    raw = TreeExamples(
        examples.columns, split_columns(unseen, examples.columns), np.zeros(300), None
    )
    values = averaging.as_matrix(raw.values, means)
    (learner,) = learners
    if task is Task.REGRESSION:
        expected = learner.predict(values)[:, None] * 300 + 5000
    else:
        expected = learner.predict_proba(values)
        expected = expected[:, 1:] if task is Task.BINARY else expected
    found = predict(problem, forest_member(problem, grown, "random"), unseen)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.isnan(grown.unseen).all()


def test_thresholds_between_two_floats_split_as_in_float64() -> None:
    """A threshold of float64 lies between two neighbours of float32: only the upper is above."""
    low = np.float32(0.1)
    high = np.nextafter(low, np.float32(1))
    between = (np.float64(low) + np.float64(high)) / 2
    found = averaging._first_above(np.array([between, np.float64(low), np.float64(high)]))
    np.testing.assert_array_equal(found, [high, high, np.nextafter(high, np.float32(1))])


@pytest.mark.parametrize("task", Task)
def test_linear_in_tensorflow_equals_scikit_learns(task: Task) -> None:
    problem, examples = make_problem(task), make_examples(task)
    member = fit_linear(examples, problem, NOTHING_HELD_OUT, seed=3)
    from trainer_module.families.supervised.ensemble import linear

    means = averaging.column_means(examples)
    matrix, _ = linear.encode(examples, means)
    model = linear.COLUMN_FITTING.fit(
        problem, matrix, examples.target(problem), examples.weight, 1.0
    )
    expected = linear.predict(model, problem, matrix).reshape(ROWS, -1)
    expected = expected * 300 + 5000 if task is Task.REGRESSION else expected
    found = predict(problem, member, make_tensors(1))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("task", "with_columns"), [(Task.BINARY, True), (Task.REGRESSION, False)])
def test_linear_learns_from_terms(task: Task, with_columns: bool) -> None:
    """As scikit-learn does on a dense matrix of the TF-IDF, beside columns and alone."""
    from trainer_module.families.supervised.ensemble import linear

    bags = {name: make_bag(seed, size) for seed, (name, size) in enumerate(SIZES.items())}
    terms = [
        TransformedFeature(name, "text", (4, 2), vocabulary_size=size)
        for name, size in SIZES.items()
    ]
    problem, examples = make_problem(task), make_examples(task)
    columns = examples.columns if with_columns else ()
    features = problem.features if with_columns else ()
    problem = replace(problem, features=(terms[0], *features, terms[1]))
    values = examples.values if with_columns else []
    examples = replace(examples, columns=columns, values=values, bags=bags)
    member = fit_linear(examples, problem, NOTHING_HELD_OUT, seed=3)

    matrices = [linear.encode(examples, averaging.column_means(examples))[0].toarray()]
    for name, size in SIZES.items():
        dense = np.zeros((ROWS, size))
        for place in range(4):
            found = bags[name][:, place]
            np.add.at(dense, (np.arange(ROWS), found[:, 0].astype(int)), found[:, 1])
        matrices.append(dense)
    matrix = np.concatenate(matrices, 1)
    model = linear.TEXT_FITTING.fit(problem, matrix, examples.target(problem), examples.weight, 3.0)
    expected = linear.predict(model, problem, matrix).reshape(ROWS, -1)
    expected = expected * 300 + 5000 if task is Task.REGRESSION else expected
    found = predict(problem, member, {**make_tensors(1), **bags})
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


SIZES = {"title": 20, "text": 30}


def make_bag(seed: int, size: int) -> np.ndarray:
    """Pairs of indices and TF-IDF of up to four terms, padded with 0."""
    random = np.random.default_rng(seed)
    weights = random.uniform(0.1, 1, (ROWS, 4)) * (random.random((ROWS, 4)) < 0.8)
    return np.stack([random.integers(0, size, (ROWS, 4)) * (weights > 0), weights], 2).astype("f")


@pytest.mark.slow
def test_model_is_the_weighted_mean_of_its_members(tmp_path: Any) -> None:
    task = Task.MULTICLASS
    problem, tensors = make_problem(task), make_tensors(2, 50)
    members = {kind: fit(kind, task, FOLDS) for kind in ("boosted", "extra", "linear")}
    weights = {"boosted": 0.5, "extra": 0.3, "linear": 0.2}
    builds = {name: member.build for name, member in members.items()}
    model = build_ensemble(problem, builds, weights, 1.0)
    expected = sum(
        weights[name] * predict(problem, member, tensors) for name, member in members.items()
    )
    np.testing.assert_allclose(model(tensors).numpy(), expected, rtol=1e-6, atol=1e-6)
    model.save(tmp_path / "model")
    loaded = tf_keras.models.load_model(tmp_path / "model", compile=False)
    np.testing.assert_allclose(loaded(tensors).numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_in_order_of_time_the_latest_part_is_held_out_and_learnt_at_last() -> None:
    parts = Parts(np.arange(ROWS) * 5 // ROWS, is_ordered=True)
    member = fit("extra", Task.REGRESSION, Folds(parts, 1))
    is_unseen = ~np.isnan(member.unseen).any(1)
    np.testing.assert_array_equal(is_unseen, parts.part_of == 0)
    labels = Labels(make_problem(Task.REGRESSION), make_examples(Task.REGRESSION).label)
    found = predict(make_problem(Task.REGRESSION), member, make_tensors(1)).astype(np.float64)
    latest = np.flatnonzero(is_unseen)
    learnt, before = (
        labels.only(latest).loss(found[latest]),
        labels.only(latest).loss(member.unseen[latest]),
    )
    assert learnt < before / 2, "the exported forest has learnt from the latest part as well"


def make_predictions(noises: dict[str, float], rows: int = 2000) -> tuple[dict[str, Any], Labels]:
    random = np.random.default_rng(5)
    truth = random.normal(size=rows)
    found = {
        name: (truth + noise * random.normal(size=rows))[:, None] for name, noise in noises.items()
    }
    return found, Labels(Problem(Task.REGRESSION, "y", (), ()), truth)


def test_weights_prefer_members_with_small_independent_errors() -> None:
    unseen, labels = make_predictions({"tabular": 1.0, "boosted": 1.0, "linear": 2.0, "extra": 9.0})
    unseen["tabular"][400:] = np.nan
    weights = select(unseen, labels, "tabular")
    # The weights of independent errors are proportional to the reciprocals of their variances.
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["tabular"] == pytest.approx(4 / 9, abs=0.06)
    assert weights["boosted"] == pytest.approx(4 / 9, abs=0.06)
    assert weights["linear"] == pytest.approx(1 / 9, abs=0.04)
    assert "extra" not in weights


def test_without_unseen_examples_weights_are_equal() -> None:
    unseen, labels = make_predictions({"tabular": 1.0, "boosted": 1.0, "linear": 2.0})
    empty = {name: np.full_like(values, np.nan) for name, values in unseen.items()}
    assert select(empty, labels, "tabular") == {"boosted": 0.25, "linear": 0.25, "tabular": 0.5}
    assert select({"tabular": empty["tabular"]}, labels, "tabular") == {"tabular": 1.0}
    assert select({"linear": empty["linear"]}, labels, "tabular") == {"linear": 1.0}


def test_unseen_examples_of_weight_0_count_equally() -> None:
    """Only the examples that the network has not seen may all have a weight of 0."""
    unseen, labels = make_predictions({"tabular": 1.0, "boosted": 1.0, "linear": 2.0})
    unseen["tabular"][400:] = np.nan
    weighted = replace(labels, weight=(np.arange(len(labels.values)) >= 400).astype(np.float32))
    assert select(unseen, weighted, "tabular")["tabular"] == pytest.approx(0.5, abs=0.1)
    binary = Labels(make_problem(Task.BINARY), np.array([0, 1]), np.zeros(2))
    assert calibration_error(np.array([[0.25], [0.75]]), binary) == pytest.approx(0.25)


@pytest.mark.parametrize("task", [Task.BINARY, Task.MULTICLASS])
def test_temperature_calibrates_overconfident_probabilities(task: Task) -> None:
    random = np.random.default_rng(4)
    problem = make_problem(task)
    logits = random.normal(size=(4000, problem.output_units)) * 1.5
    right = 1 / (1 + np.exp(-logits)) if task is Task.BINARY else tf.nn.softmax(logits).numpy()
    if task is Task.BINARY:
        label = (random.random(4000) < right[:, 0]).astype(int)
    else:
        label = np.array([random.choice(3, p=row / row.sum()) for row in right])
    labels = Labels(problem, label)
    sharp = divide_logits(problem, right, 1 / 2.5)
    found = temperature(sharp, labels)
    assert found == pytest.approx(2.5, rel=0.15)
    before, after = (
        calibration_error(p, labels) for p in (sharp, divide_logits(problem, sharp, found))
    )
    assert before is not None
    assert after is not None
    assert after < before / 3
    assert temperature(right, labels) == pytest.approx(1, abs=0.1)
