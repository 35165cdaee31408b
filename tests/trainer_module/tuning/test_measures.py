"""What a search may look for is measured in training as the Evaluator's metric of that name is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as theirs

from trainer_module.measures import make_measure, measures_of
from trainer_module.problem import Problem
from trainer_module.settings.tasks import SUPERVISED_TASKS, supervised_class

ROWS = 400
OPTIONS = {"ordinal": {"order": ["low", "mid", "high"]}}
CLASSES = {
    "binary": ("no", "yes"),
    "multiclass": ("a", "b", "c"),
    "ordinal": ("low", "mid", "high"),
}

Measured = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Labels [rows], what a model gives [rows, n], and weights [rows]."""


def _examples(kind: str) -> Measured:
    """Of a model that is right more often than not; weights count as often as they say."""
    generator = np.random.default_rng(7)
    weights = generator.integers(1, 4, ROWS).astype(np.float32)
    if kind == "binary":
        labels = (generator.random(ROWS) < 0.3).astype(np.int64)
        given = np.clip(0.4 * labels + generator.uniform(0.05, 0.55, ROWS), 0.01, 0.99)[:, None]
    elif kind in CLASSES:
        labels = generator.choice(3, ROWS, p=[0.6, 0.3, 0.1])
        given = generator.dirichlet([1, 1, 1], ROWS) + np.eye(3)[labels] * 0.5
        given /= given.sum(1, keepdims=True)
    else:
        labels = generator.poisson(3, ROWS).astype(np.float32)
        given = np.maximum(labels + generator.normal(0, 1, ROWS), 0.2)[:, None]
        labels += kind == "regression"  # No percentage of 0.
    return labels, given.astype(np.float32), weights


def _top(k: int) -> Callable[..., float]:
    return lambda y, p, w: theirs.top_k_accuracy_score(y, p, k=k, sample_weight=w)


def _by_class(score: Callable[..., float], **options: Any) -> Callable[..., float]:
    def of(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
        found = p.argmax(1) if p.shape[1] > 1 else p[:, 0] > 0.5
        return score(y, found, sample_weight=w, **options)

    return of


def _of_scores(score: Callable[..., float]) -> Callable[..., float]:
    return lambda y, p, w: score(y, p if p.shape[1] > 1 else p[:, 0], sample_weight=w)


def _area_under_precision(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    return float(theirs.average_precision_score(y, p[:, 0], sample_weight=w))


def _rank_error(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    return float(np.average(np.abs(p.argmax(1) - y), weights=w))


def _percentage(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    return 100 * theirs.mean_absolute_percentage_error(y, p[:, 0], sample_weight=w)


EXPECTED: dict[str, Callable[..., float]] = {
    "accuracy": _by_class(theirs.accuracy_score),
    "auc": _of_scores(theirs.roc_auc_score),
    "auc_precision_recall": _area_under_precision,
    "balanced_accuracy": _by_class(theirs.balanced_accuracy_score),
    "f1": _by_class(theirs.f1_score),
    "log_loss": _of_scores(theirs.log_loss),
    "macro_f1": _by_class(theirs.f1_score, average="macro"),
    "macro_precision": _by_class(theirs.precision_score, average="macro"),
    "macro_recall": _by_class(theirs.recall_score, average="macro"),
    "mae": _of_scores(theirs.mean_absolute_error),
    "mape": _percentage,
    "mse": _of_scores(theirs.mean_squared_error),
    "poisson_deviance": _of_scores(theirs.mean_poisson_deviance),
    "precision": _by_class(theirs.precision_score),
    "r2": _of_scores(theirs.r2_score),
    "rank_error": _rank_error,
    "recall": _by_class(theirs.recall_score),
    "rmse": _of_scores(theirs.root_mean_squared_error),
    "top_2_accuracy": _top(2),
    "top_3_accuracy": lambda y, p, w: 1.0,
    "top_5_accuracy": lambda y, p, w: 1.0,
}
AREAS = {"auc": 0.005, "auc_precision_recall": 0.01}
"""Keras adds these up over 200 thresholds."""


def _task(kind: str, **options: Any) -> Any:
    return supervised_class(kind).model_validate({"kind": kind, **OPTIONS.get(kind, {}), **options})


@pytest.mark.parametrize("kind", SUPERVISED_TASKS)
def test_measures_equal_those_of_scikit_learn(kind: str) -> None:
    for name in measures_of(_task(kind)):
        check_measure(kind, name)


def check_measure(kind: str, name: str) -> None:
    labels, given, weights = _examples(kind)
    problem = Problem(_task(kind), "y", CLASSES.get(kind, ()), ())
    measure = make_measure(problem.target, len(problem.classes), name)
    assert measure.name == name
    for part in np.array_split(np.arange(ROWS), 3):
        measure.update_state(labels[part, None], given[part], weights[part])
    right = EXPECTED[name](labels, given, weights)
    assert float(measure.result()) == pytest.approx(right, abs=AREAS.get(name, 0), rel=1e-4)
    measure.reset_state()
    measure.update_state(labels[:9, None], given[:9])
    assert float(measure.result()) != pytest.approx(right, rel=1e-6) or right == 1


def test_the_number_alone_is_measured_beside_quantiles() -> None:
    labels, given, _ = _examples("regression")
    problem = Problem(_task("regression", quantiles=[0.1, 0.9]), "y", (), ())
    measure = make_measure(problem.target, len(problem.classes), "r2")
    measure.update_state(labels[:, None], np.hstack([given, given - 9, given + 9]))
    assert float(measure.result()) == pytest.approx(theirs.r2_score(labels, given), rel=1e-4)
