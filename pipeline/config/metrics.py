"""The metrics a config may name: one table, by task."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_module.settings import Task


@dataclass(frozen=True)
class Metric:
    """A metric: the TFMA or Keras class that computes it, and which direction is better."""

    class_name: str
    higher_is_better: bool = True


_BINARY = {
    "accuracy": Metric("BinaryAccuracy"),
    "auc": Metric("AUC"),
    "auc_precision_recall": Metric("AUCPrecisionRecall"),
    "precision": Metric("Precision"),
    "recall": Metric("Recall"),
    "log_loss": Metric("BinaryCrossEntropy", higher_is_better=False),
}
_MULTICLASS = {
    "accuracy": Metric("SparseCategoricalAccuracy"),
    "log_loss": Metric("SparseCategoricalCrossentropy", higher_is_better=False),
}
_REGRESSION = {
    "mse": Metric("MeanSquaredError", higher_is_better=False),
    "mae": Metric("MeanAbsoluteError", higher_is_better=False),
    "rmse": Metric("RootMeanSquaredError", higher_is_better=False),
    "r2": Metric("SquaredPearsonCorrelation"),
}

METRICS: dict[Task, dict[str, Metric]] = {
    Task.BINARY: _BINARY,
    Task.MULTICLASS: _MULTICLASS,
    Task.REGRESSION: _REGRESSION,
}

DEFAULT_METRICS: dict[Task, tuple[str, ...]] = {
    Task.BINARY: ("auc", "accuracy", "log_loss"),
    Task.MULTICLASS: ("accuracy", "log_loss"),
    Task.REGRESSION: ("mse", "mae"),
}
