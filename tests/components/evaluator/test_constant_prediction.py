"""The value of the best constant prediction, and how seldom noise is better."""

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
from components.evaluator.executor import _add_bound


@pytest.mark.parametrize(
    ("metric", "labels", "value"),
    [
        ("accuracy", [0, 0, 0, 1], 0.75),
        ("accuracy", [0, 1, 2, 2], 0.5),
        ("auc", [0, 0, 0, 1], 0.5),
        ("auc_precision_recall", [0, 0, 0, 1], 0.25),
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
def test_constant_prediction_has_the_best_value_of_the_metric(
    metric: str, labels: list[float], value: float
) -> None:
    constant = predict_constant(metric, np.array(labels))
    assert constant is not None
    assert constant.value == pytest.approx(value)
    assert constant.examples == len(labels)
    assert not constant.is_beaten_by(constant.value)


def test_bound_is_near_the_constant_for_many_examples_and_always_reachable() -> None:
    for metric in FORMULAS:
        best = 0.0 if metric in ("log_loss", "mse", "rmse", "mae", "poisson_deviance") else 1.0
        few, many = (predict_constant(metric, np.arange(n) % 2) for n in (4, 100_000))
        assert few is not None
        assert many is not None
        assert few.is_beaten_by(best), metric
        assert abs(many.needed - many.value) < 0.01
        assert abs(few.needed - few.value) > abs(many.needed - many.value)


def test_equal_labels_have_no_constant_prediction() -> None:
    assert predict_constant("accuracy", np.zeros(5)) is None
    assert predict_constant("mse", np.array([])) is None


def noise_wins(metric: str, classes: int = 2, trials: int = 500, examples: int = 200) -> float:
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
def test_model_of_noise_is_blessed_in_at_most_7_percent_of_runs(metric: str) -> None:
    assert noise_wins(metric) < 0.07


@pytest.mark.parametrize(
    "rows_of_each",
    [
        (1, 40),
    ],
)
def test_model_of_noise_by_group_is_seldom_blessed(rows_of_each: tuple[int, int]) -> None:
    """A label of the patient, and a score of the patient that has nothing to do with it."""
    random, passed, passed_as_rows = np.random.default_rng(0), 0, 0
    for _ in range(200):
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
    assert passed / 200 < 0.08
    assert passed_as_rows / 200 > 0.25


def test_bound_of_the_constant_does_not_apply_to_slices() -> None:
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
