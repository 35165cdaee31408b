"""What the constant prediction comes to, and that noise seldom passes for more."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk
import tensorflow_model_analysis as tfma
from google.protobuf import json_format

from components.evaluator.constant_prediction import (
    FORMULAS,
    ConstantPrediction,
    predict_constant,
)
from components.evaluator.dependence import BLOCKS, block_ends
from components.evaluator.executor import _add_bound


@pytest.mark.parametrize(
    ("metric", "labels", "value"),
    [
        ("accuracy", [0, 0, 0, 1], 0.75),
        ("accuracy", [0, 1, 2, 2], 0.5),
        ("auc", [0, 0, 0, 1], 0.5),
        ("auc_precision_recall", [0, 0, 0, 1], 0.25),
        ("precision", [0, 0, 0, 1], 0.25),
        ("balanced_accuracy", [0, 0, 0, 1], 0.5),
        ("macro_recall", [0, 0, 1, 2], 1 / 3),
        ("f1", [0, 0, 0, 1], 0.4),
        ("log_loss", [0, 0, 1, 1], np.log(2)),
        ("log_loss", [0, 1, 2, 3], np.log(4)),
        ("mse", [1.0, 3.0], 1.0),
        ("rmse", [1.0, 5.0], 2.0),
        ("mae", [0.0, 0.0, 3.0], 1.0),
        ("r2", [1.0, 2.0], 0.0),
    ],
)
def test_best_constant(metric: str, labels: list[float], value: float) -> None:
    constant = predict_constant(metric, np.array(labels))
    assert constant is not None
    assert constant.value == pytest.approx(value)
    assert constant.examples == len(labels)
    assert not constant.is_beaten_by(constant.value)


@pytest.mark.parametrize("metric", FORMULAS)
def test_needed_is_near_where_there_are_many_examples_and_never_out_of_reach(metric: str) -> None:
    best = 0.0 if metric in ("log_loss", "mse", "rmse", "mae", "poisson_deviance") else 1.0
    few, many = (predict_constant(metric, np.arange(n) % 2) for n in (4, 100_000))
    assert few is not None
    assert many is not None
    assert few.is_beaten_by(best)
    assert abs(many.needed - many.value) < 0.01
    assert abs(few.needed - few.value) > abs(many.needed - many.value)


@pytest.mark.parametrize("metric", FORMULAS)
def test_needed_is_not_out_of_reach_where_there_are_two_groups(metric: str) -> None:
    """Of one label each."""
    patients = np.repeat([0, 1], 100)
    best = 0.0 if metric in ("log_loss", "mse", "rmse", "mae", "poisson_deviance") else 1.0
    constant = predict_constant(metric, patients, patients)
    assert constant is not None
    assert constant.is_beaten_by(best)


def test_labels_that_are_all_the_same_have_no_opponent() -> None:
    assert predict_constant("accuracy", np.zeros(5)) is None
    assert predict_constant("mse", np.array([])) is None


def noise_wins(metric: str, classes: int = 2, trials: int = 1000, examples: int = 200) -> float:
    """How often a model that has learnt nothing is taken for one that has."""
    random, wins = np.random.default_rng(0), 0
    for _ in range(trials):
        if metric == "mse":
            labels, guesses = random.normal(size=(2, examples))
            # What regularised training makes of noise: nearly the mean.
            value = np.mean((labels - 0.05 * guesses - labels.mean()) ** 2)
        else:
            labels = random.integers(0, classes, examples)
            scores = random.normal(size=(classes, examples))
            value = np.mean(scores.argmax(0) == labels)
            if metric == "auc":
                order = scores[0].argsort().argsort() + 1
                positive = labels.sum()
                value = order[labels == 1].sum() - positive * (positive + 1) / 2
                value /= positive * (examples - positive)
        constant = predict_constant(metric, labels)
        assert constant is not None
        wins += constant.is_beaten_by(float(value))
    return wins / trials


@pytest.mark.parametrize("metric", ["auc", "accuracy", "mse"])
def test_noise_is_blessed_in_one_run_of_twenty_at_most(metric: str) -> None:
    assert noise_wins(metric) < 0.07


@pytest.mark.parametrize("rows_of_each", [(15, 16), (1, 40)])
def test_noise_of_whole_groups_seldom_passes(rows_of_each: tuple[int, int]) -> None:
    """A label of the patient, and a score of the patient that has nothing to do with it."""
    random, passed, passed_as_rows = np.random.default_rng(0), 0, 0
    for _ in range(500):
        sizes = random.integers(*rows_of_each, 16)
        patients = np.repeat(np.arange(16), sizes)
        labels = (np.arange(16) % 2)[random.permutation(16)][patients].astype(float)
        scores = random.normal(size=16)[patients]
        auc = sk.roc_auc_score(labels, scores)
        dependent = predict_constant("auc", labels, patients)
        as_rows = predict_constant("auc", labels)
        assert dependent is not None
        assert as_rows is not None
        passed += dependent.is_beaten_by(auc)
        passed_as_rows += as_rows.is_beaten_by(auc)
    assert passed / 500 < 0.08
    assert passed_as_rows / 500 > 0.25


@pytest.mark.parametrize("metric", FORMULAS)
def test_groups_of_independent_rows_need_about_as_much(metric: str) -> None:
    random = np.random.default_rng(1)
    labels = random.integers(0, 2, 4000)
    alone, grouped = (
        predict_constant(metric, labels, units) for units in (None, np.arange(4000) // 10)
    )
    assert alone is not None
    assert grouped is not None
    assert abs(grouped.needed - grouped.value) < 1.4 * abs(alone.needed - alone.value)


def test_blocks_of_time_keep_equal_values_together() -> None:
    days = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 7))
    ends = block_ends(days)
    assert len(ends) == BLOCKS - 1
    assert np.bincount(np.searchsorted(ends, days)).min() > 40
    assert block_ends(np.zeros(50)) == ()
    assert block_ends(np.zeros(0)) == ()


def test_slices_are_not_held_by_the_constant_of_the_whole_split() -> None:
    config = tfma.EvalConfig()
    metric = config.metrics_specs.add().metrics.add(class_name="AUC", config='"name": "auc"')
    specs = [tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=["area"])]
    given = metric.per_slice_thresholds.add(slicing_specs=specs).threshold
    given.change_threshold.absolute.value = -0.1
    given.value_threshold.lower_bound.value = -1e30
    constant = ConstantPrediction("auc", 0.5, 0.6, 100)
    bound = json_format.Parse(
        _add_bound(json_format.MessageToJson(config), constant), tfma.EvalConfig()
    )
    held = {
        tuple(spec.feature_keys): per_slice.threshold
        for per_slice in bound.metrics_specs[0].metrics[0].per_slice_thresholds
        for spec in per_slice.slicing_specs
    }
    assert held[()].value_threshold.lower_bound.value == 0.6
    assert held[("area",)].value_threshold.lower_bound.value == -1e30
    assert {one.change_threshold.absolute.value for one in held.values()} == {-0.1}


@pytest.mark.parametrize("metric", ["auc", "accuracy"])
def test_very_few_examples_tell_nothing_from_luck(metric: str) -> None:
    found = {n: predict_constant(metric, np.arange(n) % 2) for n in (2, 3, 100)}
    assert [n for n, one in found.items() if one and one.is_inconclusive] == [2, 3]
