"""What the Evaluator measures, against scikit-learn: every metric of the table, with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma
from apache_beam.options.pipeline_options import PipelineOptions
from sklearn import metrics as sk

from components.beam_workers.options import IN_PROCESS_ARGS
from components.evaluator.batched.slices import ModelRows
from components.evaluator.own_metrics.numbers import ACCURACY, PoissonDeviance
from pipeline.config.settings import PipelineConfig
from pipeline.graph.evaluation import make_eval_config
from trainer_module.settings import Task
from trainer_module.settings.tasks import SUPERVISED_TASKS, supervised_class

ROWS = 200
OWN = "evaluated_by_users.Bias"


@dataclass(frozen=True)
class Data:
    """Labels, what a model says of them, and weights."""

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


def evaluate(task: str, data: Data, folder: Path) -> dict[str, Any]:
    """All metrics and plots of a task in one evaluation, and one of the user's."""
    options = {"order": list("abcdef")} if task == "ordinal" else {}
    named = list(EXPECTED[task])
    config = make_eval_config(
        PipelineConfig.model_validate(
            {
                "name": "measured",
                "data": {"format": "csv", "path": "nowhere.csv"},
                "task": {"kind": task, **options},
                "evaluate": {"metrics": named},
            }
        ).criteria
    )
    config.model_specs[0].CopyFrom(
        tfma.ModelSpec(label_key="truth", prediction_key="output", example_weight_key="weight")
    )
    for metric in config.metrics_specs[0].metrics:
        metric.ClearField("per_slice_thresholds")  # There is no model to compare with.
    outputs = data.output.tolist()
    columns = {
        "truth": [[value] for value in data.truth.tolist()],
        "output": outputs if data.output.ndim > 1 else [[value] for value in outputs],
        "weight": [[value] for value in data.weights.tolist()],
    }
    with beam.Pipeline(options=PipelineOptions(list(IN_PROCESS_ARGS))) as pipeline:
        _ = (
            pipeline
            | beam.Create([pa.RecordBatch.from_pydict(columns)])
            | tfma.ExtractEvaluateAndWriteResults(eval_config=config, output_path=str(folder))
        )
    result = tfma.load_eval_result(str(folder))
    found = result.get_metrics_for_slice()
    numbers = {
        name: value["doubleValue"] for name, value in found.items() if "doubleValue" in value
    }
    plots = {key: value for _, by_output in result.plots for key, value in plots_in(by_output)}
    return {**numbers, **plots}


def plots_in(found: dict[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """TFMA's plots by what the config calls them."""
    for by_sub_key in (found or {}).values():
        for plots in by_sub_key.values():
            for key, value in plots.items():
                if key == "calibrationHistogramBuckets":
                    yield "calibration_curve", as_curve(value["buckets"])
                elif key.endswith("onfusionMatrixAtThresholds"):
                    yield "confusion_matrix", as_matrix(value["matrices"])


def as_curve(buckets: list[dict[str, Any]]) -> np.ndarray:
    """Of the bins that hold something: what came true, what was said, and the weight."""
    names = ("totalWeightedLabel", "totalWeightedRefinedPrediction", "numWeightedExamples")
    rows = np.array([[float(bucket.get(name) or 0) for name in names] for bucket in buckets])
    return rows[rows[:, 2] > 0]


def as_matrix(matrices: list[dict[str, Any]]) -> np.ndarray:
    """[true, said]; of two classes by the threshold of 0.5."""
    if len(matrices) > 1:
        (one,) = (matrix for matrix in matrices if matrix.get("threshold") == 0.5)
        names = ("trueNegatives", "falsePositives", "falseNegatives", "truePositives")
        return np.array([float(one.get(name) or 0) for name in names]).reshape(2, 2)
    matrix = np.zeros((6, 6))
    for entry in matrices[0]["entries"]:
        place = int(entry.get("actualClassId", 0)), int(entry.get("predictedClassId", 0))
        matrix[place] = entry["numWeightedExamples"]
    return matrix


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
    said = data.output if is_binary else data.output.max(1)
    true = data.truth if is_binary else data.truth == data.classes
    # As a prediction comes to TFMA.
    bins = np.digitize(said.astype(np.float32), np.linspace(0, 1, 11)[1:-1])
    parts = np.stack([true * data.weights, said * data.weights, data.weights], 1)
    sums = np.array([parts[bins == place].sum(0) for place in range(10)])
    return sums[sums[:, 2] > 0]


def calibration_error(data: Data) -> float:
    bins = calibration_bins(data)
    return float(np.abs(bins[:, 0] - bins[:, 1]).sum() / bins[:, 2].sum())


def confusion_matrix(data: Data) -> np.ndarray:
    classes = range(int(data.truth.max()) + 1)
    return sk.confusion_matrix(data.truth, data.classes, labels=classes, sample_weight=data.weights)


def error_quantile(level: float) -> Callable[[Data], float]:
    return lambda d: np.quantile(
        np.abs(d.truth - d.output), level, weights=d.weights, method="inverted_cdf"
    )


CALIBRATION: dict[str, Callable[[Data], Any]] = {
    "calibration_error": calibration_error,
    "calibration_curve": calibration_bins,
    "confusion_matrix": confusion_matrix,
}
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
    **CALIBRATION,
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
        **CALIBRATION,
    },
    Task.MULTICLASS: CLASSES,
    "ordinal": {**CLASSES, "rank_error": by_class(sk.mean_absolute_error)},
    Task.REGRESSION: {
        **ERRORS,
        "mape": lambda d: 100 * by_output(sk.mean_absolute_percentage_error)(d),
        "squared_correlation": squared_correlation,
        OWN: lambda d: float(np.average(d.output - d.truth, weights=d.weights)),
    },
    "count": {**ERRORS, "poisson_deviance": by_output(sk.mean_poisson_deviance)},
}


TOLERANCES = {"auc_precision_recall": 5e-3} | {
    f"{which}_absolute_error": ACCURACY for which in ("median", "p90", "p99")
}


def test_a_deviance_is_infinite_where_the_mean_is() -> None:
    deviance, none = PoissonDeviance("poisson_deviance"), np.zeros((1, 0))
    for truth in (0.0, 3.0):
        rows = ModelRows(np.array([truth]), np.array([[np.inf]]), none, np.ones(1))
        assert deviance.row_values(rows) == np.inf


# A multiclass task has the metrics of an ordinal task, but for `rank_error`.
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=[pytest.mark.slow] if task == Task.MULTICLASS else [])
        for task in SUPERVISED_TASKS
    ],
)
def test_metrics_are_what_they_are_called(task: str, tmp_path: Path) -> None:
    known = supervised_class(task).model_construct(kind=task).metrics()
    assert set(known) | {OWN} == set(EXPECTED[task]) | {OWN}
    data = make_data(task)
    found = evaluate(task, data, tmp_path)
    for name, expected in EXPECTED[task].items():
        tolerance = TOLERANCES.get(name, 1e-4)
        assert found[name] == pytest.approx(expected(data), rel=tolerance), name
