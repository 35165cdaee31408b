"""Evaluator's metrics as training can measure them, after each epoch and on its own examples.

Importing this package does not import TensorFlow: which there are is asked of a config.
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
    """The class of a metric that training measures."""

    path: str
    options: dict[str, Any] = field(default_factory=dict)
    """Its arguments, besides its name and those of the Evaluator's class."""
    counts_classes: bool = False
    """Whether its first argument is how many classes there are."""


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
"""By the class that the Evaluator measures with; of others training knows nothing."""


def measures_of(task: BaseTask) -> list[str]:
    """Returns the names of the Evaluator's metrics that training can measure, in the task's
    order.
    """
    return [name for name, metric in task.metrics().items() if metric.class_name in MEASURES]


def make_measure(task: BaseTask, classes: int, name: str) -> tf_keras.metrics.Metric:
    """Returns a new metric, of what the Evaluator would compare with the label.

    Args:
      task: of the model.
      classes: how many there are; 0 of a number.
      name: of the metric; KeyError if training cannot measure it.
    """
    from trainer_module.compat.keras import change_compared  # It imports TensorFlow.

    metric = task.metrics()[name]
    measure = MEASURES[metric.class_name]
    count = (classes,) if measure.counts_classes else ()
    made = import_registered(measure.path)(*count, name=name, **measure.options, **metric.options)
    return change_compared(made, lambda true, given: (true, task.measured(given)["predictions"]))
