"""What is predicted: a task by its name, or a mapping with its options."""

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
"""The modules of those metrics that neither TFMA nor Keras has."""


class Task(StrEnum):
    """What a label is: one of two classes, one of several, or a number.

    A supervised task is of one of these kinds; what reads labels asks for no more.
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
    """A metric: the TFMA or Keras class that computes it, and which direction is better."""

    class_name: str = ""
    """Empty where a function of the task's family computes it."""
    higher_is_better: bool = True
    module: str = ""
    """Where the class is; empty for one that TFMA or Keras knows by its name."""
    options: dict[str, Any] = field(default_factory=dict)
    """Its arguments besides the name."""
    is_compared: bool = True
    """Whether a threshold holds against the model in service too; not where a value may be too
    small as well as too large, or another model need not have any."""
    is_half: bool = False
    """Whether it is had at the cost of another, as recall at that of precision: where it has no
    threshold it speaks against no model."""
    has_unit: bool = False
    """Whether its size follows from the label's, or is not known: a difference of two values says
    nothing then, and their ratio does. Others lie between 0 and 1, or say as much of any label."""
    is_number: bool = True
    """Whether it comes to one; a matrix or a curve goes to TFMA's plots, by the name that TFMA's
    views look for, and has no thresholds."""


class LabelStatistics(Protocol):
    """What the train split tells of the label; a `Problem` has it."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in the order of their indices; none of a number."""

    @property
    def label_mean(self) -> float:
        """Of a number."""

    @property
    def label_deviation(self) -> float:
        """The standard deviation of a number."""

    @property
    def output_units(self) -> int:
        """Units of a model's last layer."""


class LearningTask(Settings):
    """The settings of a task, whichever family it is of; a task of a family adds its options."""

    kind: str
    family: ClassVar[str]
    """The name in `FAMILIES`."""
    monitor: ClassVar[str] = "val_loss"
    """What training watches, as its history has it, for the best epoch and for stopping: less is
    better."""

    @property
    def of_rows(self) -> BaseTask | None:
        """The task that rows with a label are read for; None where it learns from no such rows."""
        return None

    @property
    def needs_label(self) -> bool:
        """Whether every row has to have a label, and there have to be several."""
        return True

    @property
    def has_options(self) -> bool:
        """Whether more is said of it than its name."""
        return len(self.model_dump(exclude_defaults=True)) > 1

    def without_model_keys(self) -> LearningTask:
        """Returns the same with those keys alone that matter to who reads the data.

        What only a model reads is no part of their cache keys.
        """
        return self

    def metrics(self) -> Mapping[str, Metric]:
        """What Evaluator can measure, by the names of a config."""
        raise NotImplementedError

    def usual_metrics(self) -> tuple[str, ...]:
        """Those of a config that names none; where it sets no threshold, the first one decides."""
        raise NotImplementedError

    def reported_metrics(self) -> tuple[str, ...]:
        """Returns metrics that a config without names reports as well, and that decide nothing."""
        return ()


class BaseTask(LearningTask):
    """The settings of a supervised task, and what it makes of a label and of a model's output."""

    family: ClassVar[str] = "supervised"
    label_kind: ClassVar[Task]
    """What its label is."""
    otherwise: ClassVar[str] = ""
    """Tasks for labels that are not what it needs."""
    needs_activation: ClassVar[bool] = False
    """Whether a model's output cannot be any number."""
    most_classes: ClassVar[int | None] = None
    """How many classes a label may have at most; None where any number will do."""
    shown_metrics: ClassVar[tuple[str, ...]] = ()
    """The names of what `make_metrics` makes, the one that says most first."""

    @property
    def of_rows(self) -> BaseTask:
        """Itself."""
        return self

    @property
    def usual_objective(self) -> str:
        """What a search for better settings looks for, as the history of a training has it."""
        return f"val_{self.shown_metrics[0]}"

    @property
    def needs(self) -> str:
        """What every row's label has to be, in words; empty where any value will do."""
        return ""

    def takes(self, labels: np.ndarray) -> np.ndarray:
        """Which raw labels the task can use, [rows] bool; asked where it `needs` something."""
        return np.ones(len(labels), bool)

    @property
    def takes_own_loss(self) -> bool:
        """Whether a model's whole output is what a loss of the user's compares with the label."""
        return True

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the label as the loss wants it, [batch, 1].

        Args:
          column: raw.
          label: its name, for messages.

        Returns:
          Of a number float32, NaN where it is missing; of a class int64, its index, -1 where it is
          missing or not in the train split.

        Raises:
          DataError: the column is not of a type that the task can use.
        """
        raise NotImplementedError

    def has_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Which transformed labels are not missing, of the same shape, bool."""
        raise NotImplementedError

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """Raises TrainingError where the classes of the train split do not suit the task."""

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """What each unit of a model's last layer stands for: equal names mean the same."""
        raise NotImplementedError

    def output_width(self, classes: tuple[str, ...]) -> int:
        """Numbers that a model gives for an example: behind the activation of its last layer."""
        return len(self.outputs(classes))

    @property
    def gives(self) -> str:
        """What these numbers are, in words."""
        raise NotImplementedError

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From what the last layer adds up, [batch, units], to the model's output, in float32."""
        raise NotImplementedError

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns the last layer of a model with its activation, called `output`."""
        raise NotImplementedError

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Returns the usual loss, new."""
        raise NotImplementedError

    def make_class_loss(
        self, problem: LabelStatistics, label_smoothing: float, gamma: float | None
    ) -> tf_keras.losses.Loss:
        """Cross-entropy of classes, or with a `gamma` the focal loss, new."""
        raise NotImplementedError

    def logit_shift(self, class_weights: Sequence[float]) -> list[float]:
        """What the weights of classes add to logits: of a class that counts twice log 2."""
        return [math.log(weight or 1.0) for weight in class_weights]

    def loss_unit(self, problem: LabelStatistics) -> float:
        """What labels and numbers are divided by before the loss of a model's number is taken."""
        del problem
        return 1.0

    def whole_loss(
        self, loss: tf_keras.losses.Loss, problem: LabelStatistics, degree: int = 1
    ) -> tf_keras.losses.Loss:
        """Returns the loss of all that a model gives, from that of its classes or its number.

        Args:
          loss: of the number, or the classes.
          problem: what is to be learnt.
          degree: 2 of a loss that is in squares of a number's units.
        """
        del problem, degree
        return loss

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """New metrics, which training shows after each epoch."""
        raise NotImplementedError

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """What Evaluator compares with labels: `predictions`, and what metrics of ours ask for."""
        return {"predictions": output}

    def measured_label(self, label: tf.Tensor, problem: LabelStatistics) -> tf.Tensor:
        """Returns the transformed label as Evaluator compares it."""
        del problem
        return label

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """Returns a model's output under the names that clients read, [batch, ...] each."""
        raise NotImplementedError


_TASKS = "trainer_module.families.supervised.tasks"
SUPERVISED_TASKS = {
    "binary": f"{_TASKS}.classes.BinaryTask",
    "multiclass": f"{_TASKS}.classes.MulticlassTask",
    "ordinal": f"{_TASKS}.classes.OrdinalTask",
    "regression": f"{_TASKS}.numbers.RegressionTask",
    "count": f"{_TASKS}.numbers.CountTask",
}
"""Import paths of the tasks with a label by the name in `task`."""
TASKS = {
    **SUPERVISED_TASKS,
    "control": "trainer_module.families.control.task.ControlTask",
    "generation": "trainer_module.families.generation.task.GenerationTask",
}
"""Likewise of all tasks."""


def task_class(kind: str) -> type[LearningTask]:
    """Returns a task, by its name in the config."""
    found: type[LearningTask] = import_registered(TASKS[kind])
    return found


def supervised_class(kind: str) -> type[BaseTask]:
    """Returns a task with a label, by its name in the config; TypeError where the task has none."""
    found = task_class(kind)
    if not issubclass(found, BaseTask):
        raise TypeError(f"task {kind} has no label")
    return found


def as_task(task: LearningTask | str) -> BaseTask:
    """Returns a supervised task; a name stands for the task without options, as it does in a
    config.

    Raises:
      TypeError: the task is of another family, and learns from no rows.
    """
    found = supervised_class(task)(kind=str(task)) if isinstance(task, str) else task
    if (of_rows := found.of_rows) is None:
        raise TypeError(f"task {found.kind} has no label")
    return of_rows


def _any_of(tasks: dict[str, str]) -> Any:
    return named_or_mapping("Task", "What the model predicts.", tasks)


TaskSettings: TypeAlias = Annotated[LearningTask, Registered(TASKS, _any_of)]
