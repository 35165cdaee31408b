"""The key `task` of a config: the name of a task, or a mapping with its options."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias

import numpy as np

from trainer_module.sections import Registered, Settings, import_registered, named_or_mapping

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.features.raw_columns import AnyTensor


CLASS_METRICS = "components.evaluator.own_metrics.classes"
NUMBER_METRICS = "components.evaluator.own_metrics.numbers"
"""The modules of the metrics that neither TFMA nor Keras has."""


class Task(StrEnum):
    """The kind of a label: one of two classes, one of several, or a number.

    Every supervised task is of one of these kinds; code that reads labels only distinguishes them.
    """

    BINARY = "binary"
    MULTICLASS = "multiclass"
    REGRESSION = "regression"

    @property
    def is_classification(self) -> bool:
        """Whether the label is a class."""
        return self is not Task.REGRESSION


@dataclass(frozen=True)
class Metric:
    """A metric: the TFMA or Keras class that computes it, and its properties."""

    class_name: str = ""
    """The name of the class; empty if a function of the task's family computes the metric."""
    higher_is_better: bool = True
    module: str = ""
    """The module of the class; empty if TFMA or Keras finds the class by its name."""
    options: dict[str, Any] = field(default_factory=dict)
    """The arguments of the class besides the name."""
    is_compared: bool = True
    """Whether a threshold also compares the model with the one in service; `False` for metrics
    whose best value lies in the middle, or that another model may lack."""
    is_half: bool = False
    """Whether the metric is one side of a trade-off, such as recall and precision; without a
    threshold it does not block a model."""
    has_unit: bool = False
    """Whether the size of its values follows from the label's unit, or is unknown, so that models
    are compared by the ratio of the values. The values of other metrics lie between 0 and 1, or are
    independent of the label's unit, and are compared by their difference."""
    is_number: bool = True
    """Whether its value is a number; a matrix or a curve is stored in TFMA's plots, under the name
    that TFMA's views expect, and has no thresholds."""


class LabelStatistics(Protocol):
    """The statistics of the label on the train split; `Problem` implements it."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in the order of their indices; empty for a number."""

    @property
    def label_mean(self) -> float:
        """The mean of a label that is a number."""

    @property
    def label_deviation(self) -> float:
        """The standard deviation of a label that is a number."""

    @property
    def output_units(self) -> int:
        """The number of units of a model's last layer."""


class LearningTask(Settings):
    """The settings of a task of any family; the tasks of a family add their options."""

    kind: str
    family: ClassVar[str]
    """The name of the task's family in `FAMILIES`."""
    monitor: ClassVar[str] = "val_loss"
    """The metric in the training history that selects the best epoch and stops training; smaller is
    better."""

    @property
    def of_rows(self) -> BaseTask | None:
        """The supervised task whose rows with labels are read; None if the task does not learn from
        such rows.
        """
        return None

    @property
    def needs_label(self) -> bool:
        """Whether every row needs a label, with more than one value over all rows."""
        return True

    @property
    def has_options(self) -> bool:
        """Whether the config gives options besides the name of the task."""
        return len(self.model_dump(exclude_defaults=True)) > 1

    def without_model_keys(self) -> LearningTask:
        """Returns the task with only the keys that components other than the Trainer read.

        Keys that only a model reads stay out of the cache keys of those components.
        """
        return self

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics that the Evaluator can measure, by their name in a config."""
        raise NotImplementedError

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the names of the default metrics; without thresholds, the first one decides."""
        raise NotImplementedError

    def reported_metrics(self) -> tuple[str, ...]:
        """Returns metrics that a config without names reports as well, and that decide nothing."""
        return ()

    def default_metrics(self) -> tuple[str, ...]:
        """Returns the metrics that a config without names measures, the deciding one first."""
        known = self.metrics()
        return (*self.usual_metrics(), *(one for one in self.reported_metrics() if one in known))


class BaseTask(LearningTask):
    """The settings of a supervised task, and its treatment of labels and of a model's output."""

    family: ClassVar[str] = "supervised"
    label_kind: ClassVar[Task]
    """The kind of the task's label."""
    alternatives: ClassVar[str] = ""
    """The names of alternative tasks for labels that do not suit this one, for messages."""
    needs_activation: ClassVar[bool] = False
    """Whether the range of a model's output is restricted, which needs an activation."""
    most_classes: ClassVar[int | None] = None
    """The most classes that a label may have; None for no limit."""
    shown_metrics: ClassVar[tuple[str, ...]] = ()
    """The names of the metrics that `make_metrics` returns, the most informative first."""

    @property
    def of_rows(self) -> BaseTask:
        """The task itself, as it learns from rows with labels."""
        return self

    @property
    def usual_objective(self) -> str:
        """The default objective of a hyperparameter search, a key of the training history."""
        return f"val_{self.shown_metrics[0]}"

    @property
    def needs(self) -> str:
        """The requirement on every label, in words for messages; empty if any value is valid."""
        return ""

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """Returns which raw labels are valid, [rows] bool; called only if `needs` is not empty."""
        return np.ones(len(labels), bool)

    @property
    def takes_own_loss(self) -> bool:
        """Whether a loss of the user's compares a model's whole output with the label."""
        return True

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the label in the form that the loss takes, [batch, 1].

        Args:
          column: the raw column.
          label: the name of the column, for messages.

        Returns:
          float32 for a number, NaN where missing; int64 for a class, its index, -1 where the class
          is missing or not in the train split.

        Raises:
          DataError: the column is not of a type that the task can use.
        """
        raise NotImplementedError

    def has_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns which transformed labels are not missing, bool of the same shape."""
        raise NotImplementedError

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """Raises TrainingError where the classes of the train split do not suit the task."""

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the meanings of the units of a model's last layer; equal names mean equal
        semantics.
        """
        raise NotImplementedError

    def output_width(self, classes: tuple[str, ...]) -> int:
        """Returns the length of a model's output per example, after the activation of its last
        layer.
        """
        return len(self.outputs(classes))

    @property
    def output_description(self) -> str:
        """A description of the numbers in a model's output, for messages."""
        raise NotImplementedError

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a layer that maps the last layer's sums, [batch, units], to the output, in
        float32.
        """
        raise NotImplementedError

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns the last layer of a model with its activation, called `output`."""
        raise NotImplementedError

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Returns a new object of the task's default loss."""
        raise NotImplementedError

    def make_class_loss(
        self, problem: LabelStatistics, label_smoothing: float, gamma: float | None
    ) -> tf_keras.losses.Loss:
        """Returns a new cross-entropy loss, or with a `gamma` a focal loss."""
        raise NotImplementedError

    def logit_shift(self, class_weights: Sequence[float]) -> list[float]:
        """Returns the shift of the logits that class weights cause: log 2 for a weight of 2."""
        return [math.log(weight or 1.0) for weight in class_weights]

    def loss_unit(self, problem: LabelStatistics) -> float:
        """Returns the divisor of labels and predictions of numbers in the loss."""
        del problem
        return 1.0

    def whole_loss(
        self, loss: tf_keras.losses.Loss, problem: LabelStatistics, degree: int = 1
    ) -> tf_keras.losses.Loss:
        """Returns the loss of a model's whole output, from the loss of its classes or its number.

        Args:
          loss: the loss of the number, or of the classes.
          problem: the problem that is learnt.
          degree: 2 for a loss in squares of a number's units, otherwise 1.
        """
        del problem, degree
        return loss

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns new metrics that are shown after each epoch."""
        raise NotImplementedError

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the tensors that the Evaluator reads: `predictions`, and inputs of this project's
        metrics.
        """
        return {"predictions": output}

    def measured_label(self, label: tf.Tensor, problem: LabelStatistics) -> tf.Tensor:
        """Returns the transformed label in the form that the Evaluator compares with
        predictions.
        """
        del problem
        return label

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """Returns a model's outputs by the names that clients read, [batch, ...] each."""
        raise NotImplementedError


_TASKS = "trainer_module.families.supervised.tasks"
SUPERVISED_TASKS = {
    "binary": f"{_TASKS}.classes.BinaryTask",
    "multiclass": f"{_TASKS}.classes.MulticlassTask",
    "ordinal": f"{_TASKS}.classes.OrdinalTask",
    "regression": f"{_TASKS}.numbers.RegressionTask",
    "count": f"{_TASKS}.numbers.CountTask",
}
"""The import paths of the supervised tasks by their name in `task`."""
TASKS = {
    **SUPERVISED_TASKS,
    "control": "trainer_module.families.control.task.ControlTask",
    "generation": "trainer_module.families.generation.task.GenerationTask",
}
"""The import paths of all tasks by their name in `task`."""


def task_class(kind: str) -> type[LearningTask]:
    """Returns the class of a task by its name in the config."""
    found: type[LearningTask] = import_registered(TASKS[kind])
    return found


def supervised_class(kind: str) -> type[BaseTask]:
    """Returns the class of a supervised task by its name; raises TypeError if the task has no
    label.
    """
    found = task_class(kind)
    if not issubclass(found, BaseTask):
        raise TypeError(f"task {kind} has no label")
    return found


def as_task(task: LearningTask | str) -> BaseTask:
    """Returns the supervised task of a task, or the task without options that a name stands for.

    Raises:
      TypeError: the task is of another family and does not learn from rows with labels.
    """
    found = supervised_class(task)(kind=str(task)) if isinstance(task, str) else task
    if (of_rows := found.of_rows) is None:
        raise TypeError(f"task {found.kind} has no label")
    return of_rows


def _any_of(tasks: dict[str, str]) -> Any:
    return named_or_mapping("Task", "What the model predicts.", tasks)


TaskSettings: TypeAlias = Annotated[LearningTask, Registered(TASKS, _any_of)]
