"""What the constant prediction comes to, and that noise seldom passes for more."""

from __future__ import annotations

import numpy as np
import pytest

from components.evaluator.constant_prediction import FORMULAS, predict_constant


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
