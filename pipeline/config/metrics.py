"""The metrics a config may name: one table, by task, and those of the user's by import path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer_module.settings import Task

OWN_MODULE = "components.evaluator.metrics"
"""Where those are that TFMA has not got."""


@dataclass(frozen=True)
class Metric:
    """A metric: the TFMA or Keras class that computes it, and which direction is better."""

    class_name: str
    higher_is_better: bool = True
    module: str = ""
    """Where the class is; empty for one that TFMA or Keras knows by its name."""
    options: dict[str, Any] = field(default_factory=dict)
    """Its arguments besides the name."""


_BINARY = {
    "accuracy": Metric("BinaryAccuracy"),
    "balanced_accuracy": Metric("BalancedAccuracy"),
    "auc": Metric("AUC"),
    "auc_precision_recall": Metric("AUCPrecisionRecall"),
    "average_precision": Metric("AveragePrecision", module=OWN_MODULE),
    "precision": Metric("Precision"),
    "recall": Metric("Recall"),
    "f1": Metric("F1Score"),
    "log_loss": Metric("BinaryCrossEntropy", higher_is_better=False),
}
_MULTICLASS = {
    "accuracy": Metric("SparseCategoricalAccuracy"),
    "balanced_accuracy": Metric("MulticlassBalancedAccuracy", module=OWN_MODULE),
    "top_2_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 2}),
    "top_3_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 3}),
    "top_5_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 5}),
    "macro_precision": Metric("MacroPrecision", module=OWN_MODULE),
    "macro_recall": Metric("MacroRecall", module=OWN_MODULE),
    "macro_f1": Metric("MacroF1", module=OWN_MODULE),
    "log_loss": Metric("SparseCategoricalCrossentropy", higher_is_better=False),
}
_REGRESSION = {
    "mse": Metric("MeanSquaredError", higher_is_better=False),
    "mae": Metric("MeanAbsoluteError", higher_is_better=False),
    "mape": Metric("MeanAbsolutePercentageError", higher_is_better=False),
    "rmse": Metric("RootMeanSquaredError", higher_is_better=False),
    "r2": Metric("CoefficientOfDetermination", module=OWN_MODULE),
    "squared_correlation": Metric("SquaredPearsonCorrelation"),
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


def is_own(name: str) -> bool:
    """Whether a metric is named by the import path of a class of the user's."""
    return "." in name


def find_metric(task: Task, name: str, has_maximum: bool) -> Metric:
    """A metric of the table, or the user's.

    Args:
      task: what is predicted.
      name: in the table, or an import path.
      has_maximum: whether a threshold is its largest value: of the user's, less is better then.
    """
    if not is_own(name):
        return METRICS[task][name]
    module, _, class_name = name.rpartition(".")
    return Metric(class_name, higher_is_better=not has_maximum, module=module)
