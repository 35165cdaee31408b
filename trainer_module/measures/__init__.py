"""The Evaluator's metrics that training can also measure, after each epoch on its held-out
examples.

Importing this package does not import TensorFlow, as the check of a config reads the registry.
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
    options: dict[str, Any] = field(default_factory=dict)
    """The arguments of the class, besides its name and the options of the Evaluator's class."""
    counts_classes: bool = False
    """Whether its first argument is the number of classes."""


_SAME = (
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

MEASURES = {name: Measure(f"{_KERAS}.{name}") for name in _SAME} | {
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
"""The measures by the Evaluator's class of the metric; training cannot measure other metrics."""


def measures_of(task: BaseTask) -> list[str]:
    """Returns the names of the Evaluator's metrics that training can measure, in the task's
    order.
    """
    return [name for name, metric in task.metrics().items() if metric.class_name in MEASURES]


def make_measure(task: BaseTask, classes: int, name: str) -> tf_keras.metrics.Metric:
    """Returns a new metric, which compares the Evaluator's `predictions` with the label.

    Args:
      task: the task of the model.
      classes: the number of classes; 0 for a number.
      name: the name of the metric; raises KeyError if training cannot measure it.
    """
    from trainer_module.compat.keras import change_compared  # It imports TensorFlow.

    metric = task.metrics()[name]
    measure = MEASURES[metric.class_name]
    count = (classes,) if measure.counts_classes else ()
    made = import_registered(measure.path)(*count, name=name, **measure.options, **metric.options)
    return change_compared(made, lambda true, given: (true, task.measured(given)["predictions"]))
