"""Keras metrics with which training measures the Evaluator's metrics on held-out examples.

Importing this package does not import TensorFlow, as the check of a config reads `MEASURES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_module.sections import import_registered
from trainer_module.settings.tasks import BaseTask

if TYPE_CHECKING:
    import tf_keras

_KERAS = "tf_keras.metrics"
_OWN = "trainer_module.measures"


@dataclass(frozen=True)
class Measure:
    """The Keras class that measures one of the Evaluator's metrics."""

    path: str
    """The import path of the Keras class."""
    options: dict[str, Any] = field(default_factory=dict)
    """The arguments of the Keras class, besides the name and the options of the Evaluator's class.
    """
    counts_classes: bool = False
    """Whether the first argument of the Keras class is the number of classes."""


_SAME_NAME = (
    "AUC",
    "BinaryAccuracy",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "Precision",
    "Recall",
    "RootMeanSquaredError",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
)
"""The Evaluator's classes whose Keras class has the same name."""

MEASURES = {name: Measure(f"{_KERAS}.{name}") for name in _SAME_NAME} | {
    "AUCPrecisionRecall": Measure(f"{_KERAS}.AUC", {"curve": "PR"}),
    "BalancedAccuracy": Measure(f"{_OWN}.own.BalancedAccuracy", counts_classes=True),
    "BinaryCrossEntropy": Measure(f"{_KERAS}.BinaryCrossentropy"),
    "CoefficientOfDetermination": Measure(f"{_KERAS}.R2Score"),
    "F1Score": Measure(f"{_KERAS}.F1Score", {"threshold": 0.5, "average": "micro"}),
    "MacroF1": Measure(f"{_OWN}.own.MacroF1", counts_classes=True),
    "MacroPrecision": Measure(f"{_OWN}.own.MacroPrecision", counts_classes=True),
    "MacroRecall": Measure(f"{_OWN}.own.MacroRecall", counts_classes=True),
    "MulticlassBalancedAccuracy": Measure(f"{_OWN}.own.BalancedAccuracy", counts_classes=True),
    "PoissonDeviance": Measure(f"{_OWN}.own.PoissonDeviance"),
    "RankError": Measure(f"{_OWN}.own.RankError"),
}
"""The measures by the name of the Evaluator's class; training cannot measure other metrics."""


def measures_of(task: BaseTask) -> list[str]:
    """Returns the names of the task's metrics that training can measure."""
    return [name for name, metric in task.metrics().items() if metric.class_name in MEASURES]


def make_measure(task: BaseTask, classes: int, name: str) -> tf_keras.metrics.Metric:
    """Returns a new Keras metric, which compares the Evaluator's `predictions` with the label.

    Args:
      task: the task of the model.
      classes: the number of classes, or 0 for a numeric label.
      name: the name of the metric.

    Raises:
      KeyError: training cannot measure the metric.
    """
    from trainer_module.compat.keras import change_compared  # The module imports TensorFlow.

    metric = task.metrics()[name]
    measure = MEASURES[metric.class_name]
    count = (classes,) if measure.counts_classes else ()
    keras = import_registered(measure.path)(*count, name=name, **measure.options, **metric.options)
    return change_compared(
        keras, lambda label, output: (label, task.measured(output)["predictions"])
    )
