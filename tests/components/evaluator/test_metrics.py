"""Every metric of the Evaluator is that of scikit-learn, with weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics as sk

from components.evaluator.batched.accumulator import Accumulator
from components.evaluator.batched.computations import is_plot
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import ModelRows
from components.evaluator.own_metrics.numbers import ACCURACY, PoissonDeviance
from tests.support.as_tfma import make_config
from trainer_module.settings import Task
from trainer_module.settings.tasks import supervised_class

ROWS = 200
PLOTS = {"calibration_curve", "confusion_matrix"}


@dataclass(frozen=True)
class Data:
    """Labels, the output of a model, and weights."""

    truth: np.ndarray
    output: np.ndarray
    weights: np.ndarray

    @property
    def classes(self) -> np.ndarray:
        return self.output > 0.5 if self.output.ndim == 1 else self.output.argmax(1)


def make_data(task: str) -> Data:
    """A model that is right more often than not; of multiclass, one class is never predicted."""
    random = np.random.default_rng(7)
    weights = random.integers(1, 4, ROWS).astype(np.float64)
    if task == "count":
        truth = random.poisson(3, ROWS)
        return Data(truth, truth * random.uniform(0.5, 1.5, ROWS) + 0.5, weights)
    if task == Task.REGRESSION:
        truth = random.normal(100, 2, ROWS)
        return Data(truth, truth + random.normal(1, 1, ROWS), weights)
    if task == Task.BINARY:
        truth = random.integers(0, 2, ROWS)
        # To steps of a hundredth, so that scores are alike and never on a threshold.
        output = np.round(np.clip(truth * 0.3 + random.uniform(0, 0.7, ROWS), 0, 0.98), 2) + 0.003
        return Data(truth, output, weights)
    truth = random.integers(0, 6, ROWS)
    output = random.uniform(0, 1, (ROWS, 6)) + 0.6 * np.eye(6)[truth]
    output[:, 5] *= 0.1
    return Data(truth, output / output.sum(1, keepdims=True), weights)


def evaluate(task: str, data: Data) -> dict[str, float]:
    """All metrics of a task, computed in batches as the Evaluator does."""
    config = make_config(task, is_weighted=True, slices=[])
    output = data.output.reshape(ROWS, -1).astype(np.float32)
    quantiles = np.stack([data.output - 1, data.output + 1], 1) if task == "regression" else None
    accumulator = Accumulator(config, [])
    none = np.zeros((ROWS, 0))
    rows = ModelRows(data.truth, output, none if quantiles is None else quantiles, data.weights)
    accumulator.add(PredictedBatch({"": rows}, pa.record_batch({"x": pa.nulls(ROWS)})))
    ((_, metrics),) = accumulator.results()
    return {key.name: float(value) for key, value in metrics.items() if not is_plot(key)}


def top(k: int) -> Callable[[Data], float]:
    return lambda d: sk.top_k_accuracy_score(d.truth, d.output, k=k, sample_weight=d.weights)


def by_class(score: Callable[..., float], **options: Any) -> Callable[[Data], float]:
    return lambda d: score(d.truth, d.classes, sample_weight=d.weights, **options)


def by_output(score: Callable[..., float]) -> Callable[[Data], float]:
    return lambda d: score(d.truth, d.output, sample_weight=d.weights)


def precision_recall_area(data: Data) -> float:
    """TFMA interpolates, as Davis and Goadrich do; scikit-learn does not."""
    precision, recall, _ = sk.precision_recall_curve(
        data.truth, data.output, sample_weight=data.weights
    )
    return float(sk.auc(recall, precision))


def squared_correlation(data: Data) -> float:
    covariance = np.cov(data.truth, data.output, aweights=data.weights)
    return float(covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1]))


def calibration_bins(data: Data) -> np.ndarray:
    """By the probability of the positive class, or of the most probable one."""
    is_binary = data.output.ndim == 1
    output = data.output if is_binary else data.output.max(1)
    true = data.truth if is_binary else data.truth == data.classes
    bins = np.digitize(output.astype(np.float32), np.linspace(0, 1, 11)[1:-1])
    parts = np.stack([true * data.weights, output * data.weights, data.weights], 1)
    sums = np.array([parts[bins == place].sum(0) for place in range(10)])
    return sums[sums[:, 2] > 0]


def calibration_error(data: Data) -> float:
    bins = calibration_bins(data)
    return float(np.abs(bins[:, 0] - bins[:, 1]).sum() / bins[:, 2].sum())


def error_quantile(level: float) -> Callable[[Data], float]:
    return lambda d: np.quantile(
        np.abs(d.truth - d.output), level, weights=d.weights, method="inverted_cdf"
    )


ERRORS = {
    "smape": lambda d: float(
        np.average(
            200 * np.abs(d.truth - d.output) / (np.abs(d.truth) + np.abs(d.output)),
            weights=d.weights,
        )
    ),
    "median_absolute_error": error_quantile(0.5),
    "p90_absolute_error": error_quantile(0.9),
    "p99_absolute_error": error_quantile(0.99),
    "mse": by_output(sk.mean_squared_error),
    "mae": by_output(sk.mean_absolute_error),
    "rmse": lambda d: by_output(sk.mean_squared_error)(d) ** 0.5,
    "r2": by_output(sk.r2_score),
}
MACRO = {"average": "macro", "zero_division": 0}
CLASSES: dict[str, Callable[[Data], float]] = {
    "accuracy": by_class(sk.accuracy_score),
    "balanced_accuracy": by_class(sk.balanced_accuracy_score),
    "top_2_accuracy": top(2),
    "top_3_accuracy": top(3),
    "top_5_accuracy": top(5),
    "macro_precision": by_class(sk.precision_score, **MACRO),
    "macro_recall": by_class(sk.recall_score, **MACRO),
    "macro_f1": by_class(sk.f1_score, **MACRO),
    "log_loss": by_output(sk.log_loss),
    "calibration_error": calibration_error,
}
EXPECTED: dict[str, dict[str, Callable[[Data], Any]]] = {
    Task.BINARY: {
        "accuracy": by_class(sk.accuracy_score),
        "balanced_accuracy": by_class(sk.balanced_accuracy_score),
        "auc": by_output(sk.roc_auc_score),
        "auc_precision_recall": precision_recall_area,
        "average_precision": by_output(sk.average_precision_score),
        "precision": by_class(sk.precision_score),
        "recall": by_class(sk.recall_score),
        "f1": by_class(sk.f1_score),
        "log_loss": by_output(sk.log_loss),
        "calibration_error": calibration_error,
    },
    "ordinal": {**CLASSES, "rank_error": by_class(sk.mean_absolute_error)},
    Task.REGRESSION: {
        **ERRORS,
        "mape": lambda d: 100 * by_output(sk.mean_absolute_percentage_error)(d),
        "squared_correlation": squared_correlation,
    },
    "count": {**ERRORS, "poisson_deviance": by_output(sk.mean_poisson_deviance)},
}


TOLERANCES = {"auc_precision_recall": 5e-3} | {
    f"{which}_absolute_error": ACCURACY for which in ("median", "p90", "p99")
}


def test_deviance_of_an_infinite_mean_is_infinite() -> None:
    deviance, none = PoissonDeviance("poisson_deviance"), np.zeros((1, 0))
    for truth in (0.0, 3.0):
        rows = ModelRows(np.array([truth]), np.array([[np.inf]]), none, np.ones(1))
        assert deviance.row_values(rows) == np.inf


# A multiclass task has the metrics of an ordinal task, but for `rank_error`.
@pytest.mark.parametrize("task", ["binary", "ordinal", "regression", "count"])
def test_metrics_are_those_of_scikit_learn(task: str) -> None:
    known = supervised_class(task).model_construct(kind=task).metrics()
    assert set(known) - PLOTS == set(EXPECTED[task])
    data = make_data(task)
    found = evaluate(task, data)
    for name, expected in EXPECTED[task].items():
        tolerance = TOLERANCES.get(name, 1e-4)
        assert found[name] == pytest.approx(expected(data), rel=tolerance), name
